"""The holdings that the ledger records for a claim or a pod: devices by class, or resources of the pod's node.

What a pod requests of its node without a claim (CPU, memory, resources of a device plugin) is one holding of the pod. A
pod that requests `nvidia.com/gpu: 4` gets them from a device plugin or, where a DeviceClass offers the resource, as DRA
devices, by a claim that kube-scheduler creates. Devices are charged as all devices are; everything else by the rates of
each meter that lists the resource. One pod may have both, but one resource is served in one way.
"""

from collections.abc import Collection, Iterable

from admission.api.kubernetes.claims import ClaimSpec
from admission.api.kubernetes.devices import RequestDevice
from admission.api.kubernetes.nodes import Resources
from admission.api.muster.gangs import Charge
from admission.api.muster.ledger_entries import Holding
from admission.api.muster.meters import AdminAccess
from admission.api.values import names
from admission.api.values.names import Uid
from admission.dra.metering import device_meters
from admission.dra.metering.device_meters import Meters


def classes(meters: Meters, spec: ClaimSpec, given: Iterable[tuple[RequestDevice, bool]]) -> dict[str, int]:
    """Return how many devices of each class a claim has. given: its devices, and whether under admin access.

    A share of a device counts as one. A device under admin access stays available to others, so it counts only if a
    meter that knows the class charges admin access. Requests that the claim does not have are left out.
    """
    options = device_meters.options_of(spec)
    counted = _charged_for_admins(meters)
    found: dict[str, int] = {}
    for entry, admin in given:
        option = options.get(entry.request)
        if option is not None and (not admin or option.device_class in counted):
            found[option.device_class] = found.get(option.device_class, 0) + 1
    return found


def of_node(requests: Resources, by_devices: Collection[str] = ()) -> dict[str, int]:
    """Return what a pod requests of its node, as kube-scheduler counts it, without what DRA devices serve."""
    return {name: amount for name, amount in requests.items() if amount > 0 and name not in by_devices}


def charge(meters: Meters, resources: Resources) -> Charge:
    """Return the charge of one pod's resources on every meter that counts any of them."""
    total = {name: rates.amount(resources) for name, rates in meters.rates.items()}
    return {name: amount for name, amount in total.items() if amount}


def of_pod(meters: Meters, uid: Uid, key: str, resources: Resources) -> Holding | None:
    """Return a pod's holding of its node's resources; None if no meter counts any. key: `namespace/name`."""
    counted = counted_of(meters, resources)
    if not counted:
        return None
    return Holding(
        claim_uid=names.resources_claim(uid or Uid(key)),
        claim=key,
        devices=(),
        charge=charge(meters, counted),
        classes=counted,
    )


def counted_of(meters: Meters, resources: Resources) -> dict[str, int]:
    """Return those of a pod's resources that some meter counts, by name."""
    return {name: amount for name, amount in sorted(resources.items()) if name in meters.resources}


def least(meters: Meters, resources: Resources, offered: Collection[str], claim: ClaimSpec | None) -> Charge:
    """Return a lower bound on the charge of a pod's resources, whether its node or DRA devices serve them.

    offered: the resources that classes offer; claim: the one that kube-scheduler would create for them.
    """
    by_node = charge(meters, resources)
    if claim is None:
        return by_node
    certain = charge(meters, {name: amount for name, amount in resources.items() if name not in offered})
    by_devices = device_meters.lower_bound(meters, claim)
    total = {name: min(amount, certain.get(name, 0) + by_devices.get(name, 0)) for name, amount in by_node.items()}
    return {name: amount for name, amount in total.items() if amount}


def _charged_for_admins(meters: Meters) -> frozenset[str]:
    charging = (meter for meter in meters.meters.values() if meter.admin_access is AdminAccess.CHARGE)
    return device_meters.classes_known(charging)
