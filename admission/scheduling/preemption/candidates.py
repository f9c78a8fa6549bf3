"""The admitted gangs that could be evicted, and those that end anyway, from the ledger and the observed pods.

A claim that pods of several gangs use is not freed when one of them ends. A gang ends anyway if it was evicted, or if
all of its pods have ended or are being deleted; a pod whose deletion has stalled, as on a lost node, does not count as
ending.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from admission.api.device_use.idle import IdleAction, IdleDevices
from admission.api.kubernetes.nodes import Resources
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import Charge
from admission.api.muster.ledger_entries import Placement, Seat
from admission.api.values import names
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.dra.state.what_if import Belongings
from admission.lifecycle.transitions import ObservedAllocations
from admission.quota.preemption_rules import Candidate
from admission.scheduling.preemption.targets import PreemptionCandidate
from admission.workloads.gangs import Group

_NO_GANG, _NO_QUEUE = GangUid(""), QueueName("")

STALLED = timedelta(minutes=5)
"""How long after its grace period a pod that is being deleted still counts as ending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateInputs:
    """The inputs of candidates. leaving: pods that were evicted, also if their deletion is not observed yet.

    idle: gangs whose devices are idle.
    """

    placements: Mapping[GangUid, Placement]
    observed: ObservedAllocations
    leaving: Collection[Uid]
    now: datetime
    idle: Mapping[GangUid, IdleDevices] = field(default_factory=dict)

    def is_going(self, pod: Pod) -> bool:
        """Return whether a pod is being deleted, and its deletion has not stalled."""
        return not self._is_stalled(pod) and (pod.meta.deleted is not None or pod.meta.uid in self.leaving)

    def goes_first(self, gang: GangUid) -> bool:
        """Return whether a gang is evicted before others since its devices are idle."""
        idle = self.idle.get(gang)
        return idle is not None and idle.policy.action is not IdleAction.REPORT

    def _is_stalled(self, pod: Pod) -> bool:
        return pod.meta.deleted is not None and self.now - pod.meta.deleted > STALLED

    def goes(self, placement: Placement) -> bool:
        """Return whether a gang ends soon without being evicted."""
        pods = self.observed.snapshot.pods
        if not placement.seats:
            claims = (self.observed.claims.get(uid) for uid in placement.holdings)
            users = {uid for claim in claims if claim is not None for uid in claim.reserved_for}
            users |= {owner for uid in placement.holdings if (owner := names.pod_of_resources_claim(uid)) is not None}
            return not any(self._is_stalled(pods[uid]) for uid in map(Uid, users) if uid in pods)
        return all(self._is_over(seat, pods.get(seat.pod_uid)) for seat in placement.seats.values())

    def _is_over(self, seat: Seat, pod: Pod | None) -> bool:
        if pod is None:
            return not self.observed.is_unreadable("Pod", seat.pod)
        return pod.finished or self.is_going(pod)


def candidates(
    groups: Iterable[Group], inputs: CandidateInputs
) -> tuple[list[PreemptionCandidate], list[PreemptionCandidate]]:
    """Return the gangs that could be evicted, and those that end anyway."""
    users = _users(inputs)
    known = {group.uid: group for group in groups}
    staying: list[PreemptionCandidate] = []
    going: list[PreemptionCandidate] = []
    for uid, placement in inputs.placements.items():
        group = known.get(uid)
        if inputs.goes(placement):
            going.append(_candidate(placement, None, users, inputs))
        elif group is not None and any(pod.meta.uid in placement.seats for pod in group.pods):
            staying.append(_candidate(placement, group, users, inputs))
    going += _room_of_deleted(inputs)
    return staying, going


def _users(inputs: CandidateInputs) -> dict[Uid, set[GangUid]]:
    """Return, by claim, the gangs that use it and do not end anyway."""
    found: dict[Uid, set[GangUid]] = {}
    for uid, placement in inputs.placements.items():
        for seat in placement.seats.values() if not inputs.goes(placement) else ():
            for claim in seat.claims:
                found.setdefault(claim, set()).add(uid)
    return found


def _candidate(
    placement: Placement, group: Group | None, users: Mapping[Uid, set[GangUid]], inputs: CandidateInputs
) -> PreemptionCandidate:
    free = [uid for uid in placement.holdings if users.get(uid, set()) <= {placement.gang_uid}]
    charge = _charge(placement.holdings[uid].charge for uid in free)
    claims = {uid: inputs.observed.claims.get(uid) for uid in free}
    return PreemptionCandidate(
        key=placement.gang,
        candidate=Candidate(
            uid=placement.gang_uid,
            queue=placement.queue,
            priority=group.priority if group is not None else 0,
            reserved_at=_reserved_at(placement, group),
            queued_since=group.first_queued if group is not None else placement.reserved_at,
            charge=charge,
            is_idle=inputs.goes_first(placement.gang_uid),
        ),
        belongings=Belongings(
            claims=frozenset(c.meta.key if c is not None else placement.holdings[u].claim for u, c in claims.items()),
            uids=frozenset(free).union(claim.meta.uid for claim in claims.values() if claim is not None),
            pods=frozenset(placement.seats),
            room=tuple(_used_room(placement, inputs)),
            placed=frozenset(placement.seats),
        ),
    )


def _reserved_at(placement: Placement, group: Group | None) -> datetime:
    """Return since when a gang has had its place: one that ran before it was booked has had it since its pods run."""
    pods = group.pods if group is not None else ()
    started = (pod.started for pod in pods if pod.meta.uid in placement.seats)
    return min([placement.reserved_at, *(at for at in started if at is not None)])


def _used_room(placement: Placement, inputs: CandidateInputs) -> Iterator[tuple[NodeName, Resources]]:
    """Yield the requests of a gang's pods, by node, without pods being deleted: these are in `_room_of_deleted`."""
    for seat in placement.seats.values():
        pod = inputs.observed.snapshot.pods.get(seat.pod_uid)
        if pod is not None and not pod.finished and not (pod.node and inputs.is_going(pod)):
            yield pod.node or seat.node, pod.counted


def _room_of_deleted(inputs: CandidateInputs) -> Iterator[PreemptionCandidate]:
    """Yield one candidate with the requests of all pods that are being deleted, also those outside Muster."""
    deleted = [
        pod for pod in inputs.observed.snapshot.pods.values() if pod.node and not pod.finished and inputs.is_going(pod)
    ]
    if deleted:
        bounds = tuple((pod.node, pod.counted) for pod in deleted)
        placed, now = frozenset(pod.meta.uid for pod in deleted), inputs.now
        nobody = Candidate(uid=_NO_GANG, queue=_NO_QUEUE, priority=0, reserved_at=now, queued_since=now, charge={})
        yield PreemptionCandidate(key="", candidate=nobody, belongings=Belongings(room=bounds, placed=placed))


def _charge(charges: Iterable[Charge]) -> Charge:
    total: dict[MeterName, int] = {}
    for charge in charges:
        for meter, amount in charge.items():
            total[meter] = total.get(meter, 0) + amount
    return total
