"""Devices of metered classes that pods outside every queue hold: they are on nobody's quota and in no ledger."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.pods import Pod
from admission.api.muster.meters import Meter
from admission.api.muster.status_reports import ConditionReport
from admission.api.snapshot import Snapshot, changed
from admission.api.values.names import MeterName, Uid
from admission.dra.metering import device_meters


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutside:
    """The devices of one class that one claim holds for a pod outside queues. pod: its key."""

    pod: str
    device_class: str
    devices: int


def held(claims: Iterable[Claim], pods: Mapping[Uid, Pod], counted: Collection[str]) -> Iterator[HeldOutside]:
    """Yield what claims hold for pods outside queues. pods: by UID. counted: the classes that Meters know.

    A claim that a pod in a queue uses too is that queue's. Admin access holds nothing.
    """
    for claim in claims:
        users = [pods[Uid(uid)] for uid in claim.reserved_for if uid in pods]
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


def reported(
    reports: Iterable[ConditionReport], meters: Mapping[MeterName, Meter], outside: Mapping[str, int]
) -> list[ConditionReport]:
    """Return reports, those of Meters with what of their classes is held outside queues. outside: by class."""
    return [
        replace(report, outside={name: devices for name, devices in outside.items() if name in known})
        if outside and report.plural == "meters" and (known := _classes(meters.get(MeterName(report.name))))
        else report
        for report in reports
    ]


def _classes(meter: Meter | None) -> Collection[str]:
    return meter.classes if meter is not None else ()


class OutsideQueues:
    """The devices held outside queues by class, in successive snapshots. Only claims that changed are counted again.

    One per leader. Rule: `update`, called once in a cycle, alone changes it.

    The sums are no value over `admission.incremental`: a changed claim changes them by its difference.
    """

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._counted: frozenset[str] = frozenset()
        self._by_claim: dict[str, dict[str, int]] = {}
        self._total: dict[str, int] = {}

    def update(self, snapshot: Snapshot, counted: frozenset[str]) -> Mapping[str, int]:
        """Return the number of devices by class, only of classes of which some are held. counted: as in `held`."""
        if counted != self._counted:
            self._snapshot, self._by_claim, self._total = Snapshot(), {}, {}
        before, self._snapshot, self._counted = self._snapshot, snapshot, counted
        keys = dict.fromkeys(changed(before.claims, snapshot.claims))
        for uid in changed(before.pods, snapshot.pods):
            for pod in filter(None, (before.pods.get(uid), snapshot.pods.get(uid))):
                keys |= dict.fromkeys(f"{pod.meta.namespace}/{pod.claim_name(claim)}" for claim in pod.claims)
        for key in keys:
            self._replace(key, snapshot)
        return {name: devices for name, devices in sorted(self._total.items()) if devices}

    def _replace(self, key: str, snapshot: Snapshot) -> None:
        claim = snapshot.claims.get(key)
        found = held([claim], snapshot.pods, self._counted) if claim is not None else ()
        now = {one.device_class: one.devices for one in found}
        for name, devices in self._by_claim.pop(key, {}).items():
            self._total[name] -= devices
        for name, devices in now.items():
            self._total[name] = self._total.get(name, 0) + devices
        if now:
            self._by_claim[key] = now
