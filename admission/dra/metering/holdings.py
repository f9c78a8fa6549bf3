"""The holdings that the ledger records for a claim or a pod: devices by class, or resources of the pod's node.

What a pod requests of its node without a claim (CPU, memory, resources of a device plugin) is one holding of the pod. A
pod that requests `nvidia.com/gpu: 4` gets them from a device plugin or, where a DeviceClass offers the resource, as DRA
devices, by a claim that kube-scheduler creates. Devices are charged as all devices are; everything else by the rates of
each meter that lists the resource. One pod may have both, but one resource is served in one way.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import combinations

from admission.api.kubernetes.claims import ClaimSpec
from admission.api.kubernetes.devices import RequestDevice
from admission.api.kubernetes.nodes import Resources
from admission.api.muster.gangs import Charge
from admission.api.muster.ledger_entries import Holding
from admission.api.muster.meters import AdminAccess
from admission.api.values import names
from admission.api.values.names import MeterName, Uid
from admission.dra.metering import device_meters
from admission.dra.metering.device_meters import Meters

MOST_OFFERED = 4
"""The most extended resources of a pod of which every way to serve them is priced for a lower bound."""


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


def least(meters: Meters, resources: Resources, offered: Mapping[str, ClaimSpec]) -> Charge:
    """Return a lower bound on the charge of a pod's resources, whether its node or DRA devices serve them.

    offered: what kube-scheduler would claim for each of the resources that classes offer. Of each it is open whether a
    device plugin of the node serves it; of more than `MOST_OFFERED`, only the other resources are counted.
    """
    if not offered or len(offered) > MOST_OFFERED:
        return charge(meters, of_node(resources, offered))
    charges = [
        _charge_if(meters, resources, offered, claimed)
        for count in range(len(offered) + 1)
        for claimed in combinations(offered, count)
    ]
    total = {name: min(one.get(name, 0) for one in charges) for name in charges[0]}
    return {name: amount for name, amount in total.items() if amount}


def _charge_if(
    meters: Meters, resources: Resources, offered: Mapping[str, ClaimSpec], claimed: Collection[str]
) -> Charge:
    """Return a lower bound on the charge if devices serve the `claimed` resources, and the node all others."""
    requests = tuple(request for resource in claimed for request in offered[resource].requests)
    total = Counter[MeterName](charge(meters, of_node(resources, claimed)))
    total.update(device_meters.lower_bound(meters, ClaimSpec(requests=requests)))
    return total


def _charged_for_admins(meters: Meters) -> frozenset[str]:
    charging = (meter for meter in meters.meters.values() if meter.admin_access is AdminAccess.CHARGE)
    return device_meters.classes_known(charging)
