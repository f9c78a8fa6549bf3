"""The reports on the protection of devices: queue conditions, changes, and breaches of fences.

A breach is a device behind a fence that another client than Muster has allocated to a claim. That the API server stores
a DeviceTaintRule does not prove that kube-scheduler applies it: 1.37 serves them even if the feature gate is off, and
kube-scheduler cannot be asked. Its allocations show it. After one breach a fence does not count for the rest of the
leader's term: an operator who has fixed the cause restarts Muster.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId
from admission.api.kubernetes.meta import Condition, ConditionStatus
from admission.api.muster.queues import PlacementMode, Queue
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import Uid
from admission.api.values.references import References
from admission.scheduling.placement import mode, protection
from admission.scheduling.placement.protection import Breach, Protection, Protections

CONDITION = "DevicesProtected"

EVERY = ""
"""The key for all drivers that the setting `fence` does not name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of a driver's protection. holds: whether its devices are protected now."""

    protection: Protection
    holds: bool

    @property
    def message(self) -> str:
        subject = f"the devices of driver {self.protection.driver}" if self.protection.driver else "all devices"
        if self.holds:
            return f"Muster may allocate {subject}: {self.protection.why}"
        follows = "gangs wait for a moment" if self.protection.soon else "gangs that need them are pinned from now on"
        return f"Muster may not allocate {subject} any more: {self.protection.why}; {follows}"


def matters(queue: Queue, protections: Protections) -> bool:
    """Return whether protection matters to a queue: `Allocate` is requested, or `Auto` and the settings protect."""
    if queue.namespaces is None or queue.placement not in mode.MAY_ALLOCATE:
        return False
    return queue.placement is PlacementMode.ALLOCATE or protections != protection.NOTHING


def condition(queue: Queue, protections: Protections) -> Condition | None:
    """Return the condition of a queue; None if protection does not matter to it."""
    if not matters(queue, protections):
        return None
    ours = _asked_for(protections)
    open_ones = [one for one in ours.values() if one.by is None]
    if not open_ones:
        why = "; ".join(f"{_subject(one)}: {one.why}" for one in ours.values())
        return Condition(type=CONDITION, status=ConditionStatus.TRUE, reason="Protected", message=why)
    why = "; ".join(f"{_subject(one)}: {one.why}" for one in open_ones)
    soon = all(one.soon for one in open_ones)
    follows = "gangs that need these devices wait for a moment" if soon else "gangs that need these devices are pinned"
    reason = "NotYet" if soon else "Unprotected"
    return Condition(type=CONDITION, status=ConditionStatus.FALSE, reason=reason, message=f"{why}; {follows}")


def references(queue: Queue, protections: Protections) -> References:
    """Return the references of the condition of a queue."""
    if not matters(queue, protections):
        return ()
    ours = _asked_for(protections).values()
    reported = [one for one in ours if one.by is None] or ours
    return tuple(replace(reference, detail=CONDITION) for one in reported for reference in one.references)


def holding_by_driver(protections: Protections) -> Mapping[str, bool]:
    """Return whether the devices are protected, by driver for which the settings ask for it; EVERY for the others."""
    if protections == protection.NOTHING:
        return {}
    return {driver: one.by is not None for driver, one in _asked_for(protections).items()}


def holding(protections: Protections) -> frozenset[str]:
    """Return the drivers whose devices are protected; EVERY for those that are not named."""
    return frozenset(driver for driver, one in _asked_for(protections).items() if one.by is not None)


def changes(before: frozenset[str], protections: Protections) -> Iterator[Change]:
    """Yield the changes of protection. before: the result of `holding` at the last report."""
    for driver, one in sorted(_asked_for(protections).items()):
        if (one.by is not None) is not (driver in before):
            yield Change(protection=one, holds=one.by is not None)


def _asked_for(protections: Protections) -> Mapping[str, Protection]:
    """Return the protections that the settings ask for, by driver: fences, and coverage as EVERY; at least one."""
    rest = {EVERY: protections.rest}
    if protections.rest == protection.NOTHING.rest and protections.named:
        rest = {}
    return {**protections.named, **rest}


def _subject(one: Protection) -> str:
    return f"driver {one.driver}" if one.driver else "all drivers" if one.by is not None else "other drivers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """The state of the watch for breaches. claims: as last observed. drivers: whose fences have counted since.

    breaches: by driver.
    """

    claims: Mapping[str, Claim] = field(default_factory=dict)
    drivers: frozenset[str] = frozenset()
    breaches: Mapping[str, Breach] = field(default_factory=dict)


def observe(watch: Watch, snapshot: Snapshot, booked: Collection[Uid]) -> Watch:
    """Return the watch after a snapshot: new allocations of fenced devices that Muster did not make are breaches.

    booked: the claims that are open in the ledger.
    """
    if not watch.drivers:
        return replace(watch, claims=snapshot.claims)
    found = dict(watch.breaches)
    for key, claim in snapshot.claims.items():
        before = watch.claims.get(key)
        if before is claim or claim.allocation is None or claim.meta.uid in booked:
            continue
        if names.PLACEMENT in claim.meta.annotations or (before is not None and before.allocation is not None):
            continue
        for device in _taken(claim):
            if device.driver in watch.drivers:
                found.setdefault(device.driver, Breach(key, device))
    return replace(watch, claims=snapshot.claims, breaches=found)


def _taken(claim: Claim) -> list[DeviceId]:
    """Return the allocated devices of a claim, without those under admin access, which take nothing."""
    results = claim.allocation.devices if claim.allocation is not None else ()
    return [result.device for result in results if not result.admin_access]
