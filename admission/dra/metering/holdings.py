"""What the books say that a claim or a pod holds: devices by class, or what a device plugin gave.

A pod that asks for `nvidia.com/gpu: 4` gets them from a device plugin or, where a DeviceClass offers the resource, from
devices, by a claim that kube-scheduler makes. Devices are charged as all devices are; what a plugin serves is charged 1
for each unit on every meter that lists the resource. Of one pod both may be so, but never of one resource of it.
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

    A share of a device counts as one. Under admin access nothing is held that others could not have, so such devices
    count only where a meter that knows the class charges them. Names that the claim does not have are left out.
    """
    options = device_meters.options_of(spec)
    counted = _charged_for_admins(meters)
    found: dict[str, int] = {}
    for entry, admin in given:
        option = options.get(entry.request)
        if option is not None and (not admin or option.device_class in counted):
            found[option.device_class] = found.get(option.device_class, 0) + 1
    return found


def by_plugins(requests: Resources, by_devices: Collection[str] = ()) -> dict[str, int]:
    """Return a pod's extended resources, as kube-scheduler counts them, without those that devices serve."""
    return {name: amount for name, amount in requests.items() if "/" in name and amount > 0 and name not in by_devices}


def charge(meters: Meters, resources: Resources) -> Charge:
    """Return what resources of device plugins cost: 1 for each unit, on every meter that lists the resource."""
    total = {
        name: sum(resources.get(resource, 0) for resource in set(meter.extended_resources))
        for name, meter in meters.meters.items()
        if meter.extended_resources
    }
    return {name: amount for name, amount in total.items() if amount}


def of_pod(meters: Meters, uid: Uid, key: str, resources: Resources) -> Holding | None:
    """Return what a pod will hold of device plugins; None where no meter lists any of it. key: `namespace/name`."""
    counted = {name: amount for name, amount in sorted(resources.items()) if name in meters.resources}
    if not counted:
        return None
    return Holding(
        claim_uid=names.plugin_claim(uid or Uid(key)),
        claim=key,
        devices=(),
        charge=charge(meters, counted),
        classes=counted,
    )


def least(meters: Meters, resources: Resources, offered: Collection[str], claim: ClaimSpec | None) -> Charge:
    """Return what a pod's extended resources cost at least, whoever serves those that classes offer.

    offered: the resources that devices may serve; claim: the one that kube-scheduler would make for them.
    """
    certain = charge(meters, {name: amount for name, amount in resources.items() if name not in offered})
    if claim is None:
        return certain
    plugged = charge(meters, {name: amount for name, amount in resources.items() if name in offered})
    by_devices = device_meters.lower_bound(meters, claim)
    either = {name: min(amount, by_devices.get(name, 0)) for name, amount in plugged.items()}
    total = {name: certain.get(name, 0) + either.get(name, 0) for name in {*certain, *either}}
    return {name: amount for name, amount in total.items() if amount}


def _charged_for_admins(meters: Meters) -> frozenset[str]:
    charging = (meter for meter in meters.meters.values() if meter.admin_access is AdminAccess.CHARGE)
    return device_meters.classes_known(charging)
