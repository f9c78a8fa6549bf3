"""The reservations of heads, their parts (arrival, resources left, quota at a moment) and their messages."""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from admission.api.kubernetes.nodes import Namespace, Resources
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import Charge
from admission.api.muster.queues import Queue
from admission.api.values import durations, references
from admission.api.values.names import MeterName, NodeName, QueueName
from admission.api.values.reasons import Detail, Hold, HoldReason
from admission.api.values.references import Kind, Reference, References, Referent
from admission.dra.inventory.pools import PoolId
from admission.dra.requests.gang_request import Plan
from admission.dra.state import incremental
from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.what_if import Arrival, Interval, Room
from admission.filters import gang_rules, gang_volumes
from admission.filters.placed_pods import OnNode, PlacedPod, PlacedPods
from admission.filters.refusal import Nodes
from admission.quota import queue_order
from admission.quota.headroom import QueueUsage
from admission.quota.shortage import Shortage
from admission.scheduling.checks import runtime as checks_runtime
from admission.workloads.gangs import Group

Requests = Iterable[tuple[NodeName, Resources]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpectedEnd:
    """A running gang. end: when it is expected to have given everything back; None if unknown.

    is_used: whether what it is charged is used now; not so if it is only nominated. is_used_in_the_end: whether it is
    used when all who are evicted for others are gone.
    """

    interval: Interval
    queue: QueueName
    charge: Charge
    end: datetime | None
    is_used: bool = True
    is_used_in_the_end: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """When a gang is expected to start, and why; at is None if that is unknown. references: of the message."""

    at: datetime | None
    message: str
    references: References = ()


@dataclass(slots=True, kw_only=True, eq=False)
class Reservation:
    """The plan that is kept for a head, from `at` on. until: when it gives it back; None if unknown.

    removed: the gangs that have ended by then. passed: gangs that were backfilled since and end before. drawn: the
    pools of its devices that have counters. pods: its own, on their nodes, which are of `nodes`. placed: the pods that
    are there beside them, of which only the volumes are asked. queue_usage: at that
    time, with all gangs but itself. arrival.room: what is left on its nodes beside it. Both are charged with what
    starts meanwhile. is_proved: whether both are of this cycle.
    """

    group: Group
    at: datetime
    until: datetime | None
    plan: Plan
    arrival: Arrival
    removed: frozenset[str]
    estimate: Estimate
    drawn: frozenset[PoolId]
    pods: tuple[tuple[NodeName, Pod], ...]
    nodes: Nodes
    namespaces: Mapping[str, Namespace]
    placed: PlacedPods
    queue_usage: QueueUsage
    passed: set[str] = field(default_factory=set)
    is_proved: bool = True
    _leaves: dict[Hashable, bool] = field(default_factory=dict)
    """By queue and charge, whether quota is left for it beside the charge; valid until the usage changes."""
    _loans: frozenset[QueueName] | None = None
    """See `loans`; None until computed."""

    def is_overrun(self, late: Mapping[str, datetime]) -> bool:
        """Return whether a gang that should have ended by then is expected to end later. late: when, by gang."""
        return any(end > self.at and (gang in self.removed or gang in self.passed) for gang, end in late.items())

    def leaves(self, group: Group, plan: Plan) -> bool:
        """Return whether it still stands if a gang runs then with this plan."""
        own_devices = {use.device for use in self.arrival.uses}
        for device in (use.device for uses in plan.uses.values() for use in uses):
            if device in own_devices or (device.driver, device.pool) in self.drawn:
                return False
        room, asked = self.arrival.room, requests(group, plan)
        if any(_falls_short(room[node], requested) for node, requested in _by_node(asked).items() if node in room):
            return False
        return self.leaves_pods(group, plan) and self.leaves_quota(group.queue, plan.charge)

    def leaves_pods(self, group: Group, plan: Plan) -> bool:
        """Return whether its pods may come to their nodes beside those of a gang, and find their volumes."""
        if not self.leaves_volumes(group, plan):
            return False
        if not any(pod.rules.concern_pods for _, pod in self.pods) and not any(
            pod.rules.anti_affinity for pod in group.pods
        ):
            return True
        others = PlacedPods.build({}, self.namespaces).added(placed(group, plan))
        return gang_rules.leaves_alone(self.pods, others, self.nodes)

    def leaves_volumes(self, group: Group, plan: Plan) -> bool:
        """Return whether its pods find volumes when those of a gang have theirs, which their claims keep for good."""
        if not have_volumes(group.pods) or not have_volumes(pod for _, pod in self.pods):
            return True
        return gang_volumes.are_found(self.pods, self._beside(group, plan), self.nodes)

    def note_volumes(self, group: Group, plan: Plan) -> bool:
        """Count the volumes of a gang that starts; return whether its own pods still find theirs."""
        is_left = self.leaves_volumes(group, plan)
        if have_volumes(group.pods):
            self.placed = self._beside(group, plan)
        return is_left

    def _beside(self, group: Group, plan: Plan) -> PlacedPods:
        return self.placed.granted((node, pod.meta.uid, pod) for node, pod in pods_on(group, plan))

    def leaves_quota(self, queue: QueueName, charge: Charge) -> bool:
        """Return whether quota is left for it beside a charge of a queue."""
        key = queue, *sorted(charge.items())
        known = self._leaves.get(key)
        if known is None:
            self.queue_usage.charge(queue, charge)
            known = self._leaves[key] = self.queue_usage.fits(self.group.queue, self.plan.charge)
            self.queue_usage.give_back(queue, charge)
        return known

    @property
    def loans(self) -> frozenset[QueueName]:
        """Return its queue and those above it that borrow at its time, of the meters that it is charged."""
        if self._loans is None:
            own, charge = self.group.queue, self.plan.charge
            path = self.queue_usage.tree.path(own)
            self._loans = frozenset(name for name in path if self.queue_usage.borrows(name, own, charge))
        return self._loans

    def shortage(self, queue: QueueName, charge: Charge) -> Shortage | None:
        """Return the shortage of its own gang beside a charge of a queue."""
        self.queue_usage.charge(queue, charge)
        found = self.queue_usage.charge_fits(self.group.queue, self.plan.charge)
        self.queue_usage.give_back(queue, charge)
        return found

    def prove(self, queue_usage: QueueUsage, room: Room, placed: PlacedPods) -> None:
        """Replace the usage, resources and pods at its time by those of this cycle."""
        self.queue_usage, self.arrival, self.is_proved = queue_usage, replace(self.arrival, room=room), True
        self.placed = placed
        self._forget()

    def charge(self, charge: Charge, requests: Requests, queue: QueueName) -> bool:
        """Count a gang that will run at its time; return whether other queues borrow for it then (`loans`)."""
        before = self.loans
        self.queue_usage.charge(queue, charge)
        self._forget()
        used, room = _by_node(requests), self.arrival.room
        after = {node: incremental.less(left, used[node]) if node in used else left for node, left in room.items()}
        self.arrival = replace(self.arrival, room=after)
        return self.loans != before

    def _forget(self) -> None:
        self._leaves.clear()
        self._loans = None


class Moment(NamedTuple):
    """A time, the gangs that have ended by then, and the cluster state and usage without them."""

    at: datetime
    cluster: ClusterState
    queue_usage: QueueUsage
    removed: Sequence[ExpectedEnd]


class UsageExcludingReserved(QueueUsage):
    """The usage of queues now, with reservations excluded from what fits.

    Only for `fits`, `charge_fits` and `loan_level`.
    """

    def __init__(self, now: QueueUsage, bound: Iterable[Reservation]) -> None:  # it has no quotas of its own
        self.tree = now.tree
        self._now = now
        self._bound = tuple(bound)

    def fits(self, queue: QueueName, charge: Charge) -> bool:
        """Return whether a queue may take a charge, and all reservations still have their quota."""
        return self._now.fits(queue, charge) and all(one.leaves_quota(queue, charge) for one in self._bound)

    def charge_fits(self, queue: QueueName, charge: Charge) -> Shortage | None:
        """Return the shortage of a queue for a charge, or the one that it would cause to a reservation."""
        found = self._now.charge_fits(queue, charge)
        if found is not None:
            return found
        conflicting = next((one for one in self._bound if not one.leaves_quota(queue, charge)), None)
        return None if conflicting is None else conflicting.shortage(queue, charge)

    def loan_level(self, queue: QueueName, charge: Charge) -> int:
        """Return how far up the queue would borrow for a charge."""
        return self._now.loan_level(queue, charge)


def moment(cluster: ClusterState, queue_usage: QueueUsage, at: datetime, removed: Sequence[ExpectedEnd]) -> Moment:
    """Return the moment in which these gangs have ended, given the cluster state without them."""
    return Moment(at, cluster, usage_without(queue_usage, removed), removed)


def usage_without(queue_usage: QueueUsage, removed: Iterable[ExpectedEnd]) -> QueueUsage:
    """Return a copy of the usage, without these gangs."""
    queue_usage, removed = queue_usage.copy(), [*removed]
    # The usage may lag behind the ends, so no more is given back than the queue uses.
    queue_usage.give_back_at_most(
        _charges(one for one in removed if one.is_used), _charges(one for one in removed if one.is_used_in_the_end)
    )
    return queue_usage


def _charges(gangs: Iterable[ExpectedEnd]) -> dict[QueueName, dict[MeterName, int]]:
    found: dict[QueueName, dict[MeterName, int]] = {}
    for one in gangs:
        sums = found.setdefault(one.queue, {})
        for meter, amount in one.charge.items():
            sums[meter] = sums.get(meter, 0) + amount
    return found


def made(
    group: Group,
    plan: Plan,
    moment: Moment,
    *,
    until: datetime | None,
    awaits: Sequence[str],
    drawn: frozenset[PoolId],
) -> Reservation:
    """Return the reservation of a gang for its plan at a moment. awaits: the gangs that have to end for it."""
    asked = requests(group, plan)
    return Reservation(
        group=group,
        at=moment.at,
        estimate=pending(moment.at, awaits),
        until=until,
        plan=plan,
        arrival=Arrival(
            gang=group.key,
            uses=tuple(use for uses in plan.uses.values() for use in uses),
            requests=asked,
            room=room_excluding(moment.cluster, asked),
            pods=placed(group, plan),
        ),
        removed=frozenset(one.interval.gang for one in moment.removed),
        drawn=drawn,
        pods=pods_on(group, plan),
        nodes=moment.cluster.nodes,
        namespaces=moment.cluster.placed.namespaces,
        placed=moment.cluster.placed,
        queue_usage=moment.queue_usage,
    )


def renewed(known: Reservation, moment: Moment) -> Reservation | None:
    """Return a reservation with what is left beside it at its time; None if it no longer stands."""
    devices = (use.device for use in known.arrival.uses if not use.shared)
    if any(device in moment.cluster.taken for device in devices):
        return None
    if not all(node in moment.cluster.nodes for node in known.arrival.room):
        return None
    room = room_excluding(moment.cluster, known.arrival.requests)
    if any(min(left.values(), default=0) < 0 for left in room.values() if left is not None):
        return None
    if not moment.queue_usage.fits(known.group.queue, known.plan.charge):
        return None
    then = moment.cluster
    if not _may_come(known.pods, then):
        return None
    return Reservation(
        group=known.group,
        at=known.at,
        until=known.until,
        plan=known.plan,
        arrival=replace(known.arrival, room=room),
        removed=known.removed,
        estimate=known.estimate,
        drawn=known.drawn,
        pods=known.pods,
        nodes=then.nodes,
        namespaces=then.placed.namespaces,
        placed=then.placed,
        queue_usage=moment.queue_usage,
        passed=known.passed,
    )


def _may_come(pods: tuple[tuple[NodeName, Pod], ...], then: ClusterState) -> bool:
    """Return whether pods may come to these nodes, by the rules between pods and by their volumes."""
    if gang_rules.may_apply([pod for _, pod in pods], then.placed) and not gang_rules.may_come(
        pods, then.placed.left, then.nodes
    ):
        return False
    return gang_volumes.are_found(pods, then.placed, then.nodes)


def have_volumes(pods: Iterable[Pod]) -> bool:
    """Return whether one of these pods has a volume that rules read."""
    return any(pod.rules.volumes for pod in pods)


def drawn(plan: Plan, cluster: ClusterState) -> frozenset[PoolId]:
    """Return the pools of a plan's devices that have counters."""
    slices = cluster.slices
    devices = [use.device for uses in plan.uses.values() for use in uses]
    pools = {(device.driver, device.pool) for device in devices}
    return frozenset(pool for pool in pools if slices is not None and slices.draws(pool))


def holders(plan: Plan, cluster: ClusterState) -> set[str]:
    """Return the gangs that now hold devices of a plan."""
    devices = [use.device for uses in plan.uses.values() for use in uses]
    found = {cluster.taken[device].gang for device in devices if device in cluster.taken}
    found |= {share.holder.gang for device in devices for share in cluster.shares.get(device, ())}
    return found


def pending_gangs(moment: Moment, plan: Plan, cluster: ClusterState, already: int) -> tuple[str, ...]:
    """Return the gangs that have to end for a plan, in the order of their ends.

    already: how many of those that have ended at the moment end before its second.
    """
    last = {one.interval.gang for one in moment.removed[already:]}
    needed = holders(plan, cluster) | last
    return tuple(one.interval.gang for one in moment.removed if one.interval.gang in needed)


class Times:
    """Distinct times in ascending order, read from an iterator only as far as needed."""

    def __init__(self, times: Iterable[datetime], after: datetime) -> None:
        """times: in ascending order; those not later than `after` are left out."""
        self._left = iter(times)
        self._last = after
        self._found: list[datetime] = []

    def __getitem__(self, at: int) -> datetime:
        return self._found[at]

    def last(self, at: int) -> int:
        """Return the index `at`, or that of the last time if there are fewer; -1 if there is none."""
        while len(self._found) <= at and self._find():
            pass
        return min(at, len(self._found) - 1)

    def near(self, time: datetime) -> int:
        """Return the index of the first time not before `time`, else of the last one; -1 if there is none."""
        while (not self._found or self._found[-1] < time) and self._find():
            pass
        return min(bisect_left(self._found, time), len(self._found) - 1)

    def _find(self) -> bool:
        """Read one more time; return whether there was one."""
        time = next(self._left, None)
        if time is not None and time > self._last:
            self._last = time
            self._found.append(time)
        return time is not None


def first(times: Times, fits: Callable[[datetime], bool], start: int = 0) -> int | None:
    """Return the index of the first time that fits; None if none does.

    Requires that all times after one that fits do as well. start: the index to begin at; by default at the early times,
    which are likely and cheap. From there in steps that double, then by bisection (Bentley, Yao, *An almost optimal
    algorithm for unbounded searching*, 1976).
    """
    low, high, step = -1, times.last(start), 1
    if high < 0:
        return None
    if fits(times[high]):
        while high > 0 and fits(times[lower := max(high - step, 0)]):
            high, step = lower, 2 * step
        low = max(high - step, 0) if high > 0 else -1
    else:
        while True:
            low, high, step = high, times.last(high + step), 2 * step
            if low == high:
                return None
            if fits(times[high]):
                break
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(times[middle]) else (middle, high)
    return high


def are_equivalent(one: Group, other: Group) -> bool:
    """Return whether two states of a gang have equal pods, queue and rank."""
    if one is other:
        return True
    same_rank = queue_order.rank(one) == queue_order.rank(other) and one.queue == other.queue
    return same_rank and one.pods == other.pods and one.waiting == other.waiting


def charge(queue_usage: QueueUsage, others: Iterable[Reservation]) -> None:
    """Count reservations as used."""
    for one in others:
        queue_usage.charge(one.group.queue, one.plan.charge)


def requests(group: Group, plan: Plan) -> tuple[tuple[NodeName, Resources], ...]:
    """Return the planned nodes of a gang's pods, with the pods' requests."""
    return tuple((node, plan.taken_by(pod)) for node, pod in pods_on(group, plan))


def pods_on(group: Group, plan: Plan) -> tuple[tuple[NodeName, Pod], ...]:
    """Return a gang's pods on their planned nodes."""
    pods = {pod.meta.uid: pod for pod in group.pods}
    return tuple((place.node, pods[place.uid]) for place in plan.pods)


def placed(group: Group, plan: Plan) -> tuple[OnNode, ...]:
    """Return a gang's pods as they will be on their planned nodes."""
    return tuple((node, pod.meta.uid, PlacedPod.of(pod)) for node, pod in pods_on(group, plan))


def room_excluding(cluster: ClusterState, requests: Requests) -> dict[NodeName, Mapping[str, int] | None]:
    """Return what is left beside requests on their nodes."""
    return {node: incremental.less(cluster.left.get(node), asked) for node, asked in _by_node(requests).items()}


def _by_node(requests: Requests) -> dict[NodeName, dict[str, int]]:
    found: dict[NodeName, dict[str, int]] = {}
    for node, asked in requests:
        sums = found.setdefault(node, {})
        for name, amount in asked.items():
            sums[name] = sums.get(name, 0) + amount
    return found


def _falls_short(left: Mapping[str, int] | None, asked: Resources) -> bool:
    return left is not None and any(amount > left[name] for name, amount in asked.items() if name in left)


def behind(group: Group, queue: Queue, bound: Sequence[Reservation], order: queue_order.Order) -> Hold:
    """Hold a gang that would delay reservations, of which one of a worse rank binds it since it borrows."""
    first = min(bound, key=lambda one: one.at)
    runtime = checks_runtime.declared_runtime(group, queue)
    runs = "does not say how long it runs" if runtime is None else f"would run for {durations.render(runtime)}"
    ahead = references.refer([_referent(first.group.key, first.group.queue)], detail="behind")
    why = (
        ""
        if order.rank(first.group) < order.rank(group)
        else ", since it stays within its own quota where this borrows,"
    )
    message = (
        f"{ahead.phrase} is ahead of it{why} and is to start at {_text(first.at)}; this gang {runs}, "
        "and needs what is reserved for that"
    )
    details: dict[str, Detail] = {"behind": ahead.phrase, "until": _text(first.at)}
    return Hold(HoldReason.BEHIND_IN_ORDER, message, details, (ahead,))


def pending(at: datetime, gangs: Sequence[str]) -> Estimate:
    """Return the start of a head: after these gangs."""
    reference = _refer(gangs)
    return Estimate(at=at, message=f"when {reference.phrase} should have ended", references=(reference,))


def unknown(gangs: Sequence[str]) -> Estimate:
    """Return why the start is unknown: the ends of these gangs are."""
    reference = _refer(gangs)
    runs = "runs" if len(gangs) == 1 else "run"
    return Estimate(at=None, message=f"nobody says how long {reference.phrase} {runs}", references=(reference,))


def _refer(gangs: Sequence[str]) -> Reference:
    """Return a reference to gangs; of many the last ones are named."""
    last = [*gangs[-references.MOST_NAMED :], *gangs[-references.LISTED : -references.MOST_NAMED]]
    return references.refer(map(_referent, last), count=len(gangs) if len(gangs) > len(last) else 0)


def _referent(gang: str, queue: str = "") -> Referent:
    return Referent(kind=Kind.GANG, key=gang, queue=queue)


def _text(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
