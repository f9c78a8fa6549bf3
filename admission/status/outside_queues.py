"""Devices of metered classes that pods outside every queue hold: they are on nobody's quota and in no ledger."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.pods import Pod
from admission.dra.metering import device_meters


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutside:
    """The devices of one class that one claim holds for a pod outside queues. pod: its key."""

    pod: str
    device_class: str
    devices: int


def held(claims: Iterable[Claim], pods: Mapping[str, Pod], counted: Collection[str]) -> Iterator[HeldOutside]:
    """Yield what claims hold for pods outside queues. pods: by UID. counted: the classes that Meters know.

    A claim that a pod in a queue uses too is that queue's. Admin access holds nothing.
    """
    for claim in claims:
        users = [pods[uid] for uid in claim.reserved_for if uid in pods]
        if claim.allocation is None or not users or any(user.queue for user in users):
            continue
        options = device_meters.options_of(claim.spec)
        found: dict[str, int] = {}
        for device in claim.allocation.devices:
            option = options.get(device.given.request)
            if option is not None and not device.admin_access and option.device_class in counted:
                found[option.device_class] = found.get(option.device_class, 0) + 1
        for device_class, devices in sorted(found.items()):
            yield HeldOutside(pod=users[0].meta.key, device_class=device_class, devices=devices)
