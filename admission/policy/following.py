"""What follows from a grant: settle what was allocated, release what is gone, finish what was begun, or take it back.

A placement in the ledger is compared with the snapshot. The same rules serve the ordinary course of things and the
recovery of a controller that died half-way: what is granted but not yet placed is placed, what cannot start any more is
taken back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from admission.api import durations
from admission.api.claims import Claim
from admission.api.devices import Device, DeviceId
from admission.api.entries import Entry, Holding, Placement
from admission.api.gangs import Charge
from admission.api.names import NodeName, Uid
from admission.api.pods import Pod
from admission.api.snapshot import Snapshot
from admission.dra import metering
from admission.dra.metering import ChargeError, Meters
from admission.policy.recognition import Group
from admission.quota import books


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A gang that is taken back as a whole: the pods to delete, and why."""

    group: Group
    pods: tuple[Pod, ...]
    reason: str
    timed_out: bool


def index_devices(snapshot: Snapshot) -> dict[DeviceId, Device]:
    """Return every device by what names it, of the newest generation of its pool."""
    newest: dict[DeviceId, tuple[int, Device]] = {}
    for piece in snapshot.slices.values():
        for device in piece.devices:
            found = DeviceId(piece.driver, piece.pool, device.name)
            if found not in newest or newest[found][0] < piece.generation:
                newest[found] = (piece.generation, device)
    return {found: device for found, (_, device) in newest.items()}


def index_claims(snapshot: Snapshot) -> dict[Uid, Claim]:
    """Return every claim by its UID: a claim of the same name that was made later is another one."""
    return {claim.meta.uid: claim for claim in snapshot.claims.values()}


def settlement(  # noqa: PLR0913 - time and actor are arguments of every entry
    placement: Placement,
    claims: Mapping[Uid, Claim],
    devices: Mapping[DeviceId, Device],
    *,
    meters: Meters,
    at: datetime,
    actor: str,
) -> Entry | None:
    """Return the entry that replaces planned by allocated devices, for every claim that has been allocated since."""
    found: dict[Uid, books.Allocated] = {}
    for uid, holding in placement.holdings.items():
        claim = claims.get(uid)
        if not holding.settled and claim is not None and claim.allocation is not None:
            given = tuple(result.given for result in claim.allocation.devices)
            found[uid] = books.Allocated(given, _price(claim, holding, devices, meters))
    return books.settle(placement, found, at=at, actor=actor)


def release(
    placement: Placement, snapshot: Snapshot, claims: Mapping[Uid, Claim], *, at: datetime, actor: str
) -> Entry | None:
    """Return the entry that gives back what is gone.

    A seat ends with its pod. A holding ends when its claim is gone, or when the claim is not allocated and no pod that
    would use it is left; while such a pod lives, kube-scheduler may still allocate it, so it stays charged.
    """
    gone = {uid for uid in placement.seats if _is_over(snapshot.pods.get(uid))}
    used = {claim for uid, seat in placement.seats.items() if uid not in gone for claim in seat.claims}
    idle = {uid for uid in placement.holdings if uid not in used and _is_free(claims.get(uid))}
    deleted = {uid for uid in placement.holdings if uid not in claims}
    reason = "the pods have ended and their claims are free" if idle | deleted else "the pods have ended"
    return books.release(placement, pods=gone, claims=idle | deleted, at=at, actor=actor, reason=reason)


def unfinished(group: Group) -> list[tuple[Pod, NodeName]]:
    """Return the pods that were granted a node but whose gate is still closed."""
    if group.placement is None:
        return []
    return [(pod, group.placement.seats[pod.meta.uid].node) for pod in group.half_open]


def eviction(group: Group, snapshot: Snapshot, *, start_timeout: timedelta, now: datetime) -> Eviction | None:
    """Return why a gang must be taken back, if it must.

    Either a pod went away between the grant and the opening of all gates, so that the gang cannot start whole; or it
    was let in and is not running in time.
    """
    placement = group.placement
    if placement is None or not placement.seats:
        return None
    let_in = tuple(pod for pod in group.pods if not pod.gated and pod.meta.uid in placement.seats)
    lost = [seat.pod for uid, seat in sorted(placement.seats.items()) if uid not in snapshot.pods]
    if lost and group.half_open:
        reason = f"pod {lost[0]} went away before the whole gang was let in"
        return Eviction(group=group, pods=let_in, reason=reason, timed_out=False)
    seated = [pod for pod in group.pods if pod.meta.uid in placement.seats]
    late = [pod.meta.name for pod in seated if pod.phase == "Pending"]
    if late and now - placement.reserved_at >= start_timeout:
        within = durations.render(start_timeout)
        reason = f"{len(late)} of {len(seated)} pods did not run within {within}: {_some(late)}"
        return Eviction(group=group, pods=let_in, reason=reason, timed_out=True)
    return None


def _price(claim: Claim, planned: Holding, devices: Mapping[DeviceId, Device], meters: Meters) -> Charge:
    """Return the charge of what was allocated; what was planned where a device has left its slice or has no price."""
    assert claim.allocation is not None  # noqa: S101 - the caller has looked
    given: list[metering.Given] = []
    for result in claim.allocation.devices:
        device = devices.get(result.device)
        if device is None:
            return planned.charge
        given.append(metering.Given(result.given, device, result.admin_access))
    charge = metering.charge(meters, claim.spec, given)
    return planned.charge if isinstance(charge, ChargeError) else charge


def _is_over(pod: Pod | None) -> bool:
    return pod is None or pod.finished


def _is_free(claim: Claim | None) -> bool:
    return claim is None or claim.allocation is None


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
