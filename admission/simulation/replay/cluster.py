"""The cluster of a replayed trace: its fixed parts, and the state that changes as jobs start and end.

What runs in the input keeps its devices and its quota from the beginning to the end.
"""

import heapq
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from admission.accounting.books import Book
from admission.api.kubernetes.claims import Claim
from admission.api.muster.gangs import Charge
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.traces import Arrival
from admission.api.values.names import NodeName, QueueName
from admission.device_cel import limits
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters
from admission.dra.requests.device_use import Holder
from admission.dra.requests.gang_request import Plan
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.nodes_to_come import NodeToCome
from admission.dra.state.virtual_time import RunningGang, VirtualCluster
from admission.errors import Problem
from admission.quota import fair_share
from admission.quota.fair_share import Shares
from admission.quota.headroom import QueueUsage, Usage
from admission.quota.tree import Tree
from admission.scheduling.backfill.policy import Backfill
from admission.scheduling.backfill.queue_head import WAITING
from admission.scheduling.backfill.reservations import Reservation
from admission.scheduling.backfill.running_gangs import RunningGangs
from admission.scheduling.cache.device_companions import DeviceCompanions
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.cache.verdict_cache import Verdict
from admission.scheduling.checks import chain, demand, runtime
from admission.scheduling.checks.chain import Inputs, Known, Rules, Workspace
from admission.scheduling.placement import protection
from admission.scheduling.placement.protection import FenceInputs
from admission.scheduling.postponed_grants import Decide
from admission.simulation import offline, opening_balance
from admission.simulation.expand import Expanded
from admission.simulation.replay import arrivals
from admission.simulation.replay.arrivals import Waiting
from admission.workloads import gangs
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCluster:
    """The fixed parts: nodes, devices, queues, meters, and what runs from the beginning.

    strands_least: whether nodes are ordered by what a pod strands there (`controller.node_order`). left_out: waiting
    gangs of the input, which do not take part.
    """

    cluster: ClusterState
    snapshot: Snapshot
    tree: Tree
    usage: Usage
    rules: Rules
    strands_least: bool = True
    left_out: tuple[str, ...] = ()

    def queue(self, waiting: Waiting) -> Queue:
        return self.snapshot.queues[waiting.queue]


def build_cluster(cluster: Expanded, *, steps: int, strands_least: bool = True) -> ReplayCluster:
    """Return the cluster that the input describes. Raises FixError if what runs cannot be charged.

    strands_least: as in `ReplayCluster`.
    """
    snapshot = protection.without_fences(cluster.snapshot)
    groups = gangs.groups(snapshot, {})
    running = [group for group in groups if opening_balance.placed(group)]
    book = Book()
    for entry in opening_balance.entries(running, snapshot, at=cluster.now, actor=offline.ACTOR):
        book = book.apply(entry)
    placements = book.placements.values()
    barriers = offline.fences(cluster.snapshot)
    fence_inputs = FenceInputs(barriers=barriers, snapshot=cluster.snapshot, placements=placements, now=cluster.now)
    tree = Tree.build(snapshot.queues.values())
    snapshot = replace(snapshot, claims=dict(snapshot.claims))
    rules = Rules(
        snapshot=snapshot,
        tree=tree,
        meters=device_meters.compile_meters(snapshot.meters.values()),
        selectors=Selectors(cluster.profile.cel),
        now=cluster.now,
        steps=steps,
        profile=cluster.profile,
        sharing=fair_share.Rules.from_tree(tree),
        protection=protection.judge(fence_inputs).protections,
    )
    return ReplayCluster(
        cluster=cluster_state.build(snapshot, placements, profile=cluster.profile),
        snapshot=snapshot,
        tree=tree,
        usage={queue: {meter: sum(use) for meter, use in meters.items()} for queue, meters in book.usage().items()},
        rules=rules,
        strands_least=strands_least,
        left_out=tuple(
            sorted(_name(group, cluster) for group in groups if group.waiting and not opening_balance.placed(group))
        ),
    )


def _name(group: Group, cluster: Expanded) -> str:
    """Return a gang's name for people: its workload's, if the gang's own name would contain an invented UID."""
    workload = group.identity.workload
    invented = workload is not None and workload.uid in cluster.invented
    return f"{group.identity.namespace}/{workload.name}" if workload is not None and invented else group.key


def name_problems(replay_cluster: ReplayCluster, arrivals: Iterable[Arrival]) -> list[tuple[int, Problem]]:
    """Return the names in jobs that are unknown or invalid in the cluster, each with the line of the first such job."""
    found: dict[tuple[str, str], tuple[int, Problem]] = {}
    for arrival in arrivals:
        for name, value, check in _names_of(arrival):
            if (name, value) not in found:
                message = check(replay_cluster, value)
                found[name, value] = arrival.line, Problem(name, message)
    return [(line, problem) for line, problem in found.values() if problem.message]


_NameCheck = Callable[[ReplayCluster, str], str]


def _names_of(arrival: Arrival) -> Iterator[tuple[str, str, _NameCheck]]:
    """Yield the field, value and check of every name in a job."""
    yield "queue", arrival.queue, _check_queue
    for at, spec in enumerate(arrival.pod_requests.claims):
        for option in (option for request in spec.requests for option in request.alternatives):
            yield f"claims[{at}].class", option.device_class, _check_class
            yield from ((f"claims[{at}].selectors", text, _check_selector) for text in option.selectors)


def _check_queue(replay_cluster: ReplayCluster, name: str) -> str:
    queue = replay_cluster.snapshot.queues.get(QueueName(name))
    if queue is None:
        return f"there is no Queue {name} in the input; add it to the PATHs, or name another"
    if queue.namespaces is None:
        return f"nobody enters queue {name} directly, as it has no spec.namespaceSelector; name one below it"
    return ""


def _check_class(replay_cluster: ReplayCluster, name: str) -> str:
    exists = name in replay_cluster.snapshot.classes
    return "" if exists else f"there is no DeviceClass {name} in the input; add it to the PATHs, or name another"


def _check_selector(replay_cluster: ReplayCluster, text: str) -> str:
    refusal = limits.check(text, profile=replay_cluster.cluster.profile.cel)
    return f"{text!r} is not CEL that Kubernetes takes: {refusal.message}" if refusal is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Running:
    """A running job. charge: what is charged to its queue."""

    waiting: Waiting
    running_gang: RunningGang
    charge: Charge
    start: timedelta
    end: timedelta


def usage(waiting: Waiting, plan: Plan) -> RunningGang:
    """Return what a job uses while it runs."""
    pods = {pod.meta.uid: pod for pod in arrivals.gang_of(waiting).pods}
    return RunningGang(
        uses=tuple(
            (Holder(claim=claim.claim, gang=waiting.key), plan.uses.get(claim.uid, ()))
            for pod in plan.pods
            for claim in pod.claims
        ),
        requests=tuple((place.node, pods[place.uid].requests) for place in plan.pods),
    )


def with_nodes(snapshot: Snapshot, come: Iterable[NodeToCome], gone: Collection[NodeName] = ()) -> Snapshot:
    """Return a snapshot with more nodes and their slices, and without those of others."""
    new = {one.node.name: one for one in come}
    pieces = {piece.meta.name: piece for one in new.values() for piece in one.slices}
    return replace(
        snapshot,
        nodes={
            **{name: node for name, node in snapshot.nodes.items() if name not in gone},
            **{name: one.node for name, one in new.items()},
        },
        slices={**{key: one for key, one in snapshot.slices.items() if one.node_name not in gone}, **pieces},
    )


@dataclass(slots=True)
class Clock:
    """The changing state: the time since the trace began, the devices and quotas in use, and the running jobs."""

    replay_cluster: ReplayCluster
    rules: Rules = field(init=False)
    virtual_cluster: VirtualCluster = field(init=False)
    queue_usage: QueueUsage = field(init=False)
    shares: Shares = field(init=False)
    backfill: Backfill = field(init=False)
    now: timedelta = timedelta()
    _claims: dict[str, Claim] = field(init=False)
    _ends: list[tuple[timedelta, int, Running]] = field(default_factory=list)
    _started: int = 0
    _needed: dict[Hashable, Charge] = field(default_factory=dict)
    _companions: DeviceCompanions = field(default_factory=DeviceCompanions)

    def __post_init__(self) -> None:
        replay_cluster = self.replay_cluster
        self._claims = dict(replay_cluster.snapshot.claims)
        # This Clock owns the mapping; it has only the claims of jobs that are being decided.
        snapshot = replace(replay_cluster.snapshot, claims=self._claims)
        # It owns its Selectors, too: they cache devices in use, and the states of a VirtualCluster change in place.
        selectors = Selectors(replay_cluster.cluster.profile.cel)
        self.rules = replace(
            replay_cluster.rules, snapshot=snapshot, selectors=selectors, workspace=Workspace(), mute=True
        )
        self.virtual_cluster = VirtualCluster(replay_cluster.cluster)
        self.queue_usage = QueueUsage(replay_cluster.tree, replay_cluster.usage)
        self.shares = Shares(self.queue_usage, replay_cluster.usage, replay_cluster.rules.sharing)
        self.backfill = Backfill(RunningGangs(replay_cluster.rules.now))
        self._companions.update(replay_cluster.snapshot, selectors)

    def arrive(self, arrival: Arrival) -> None:
        """Count what the pods of a job request beside devices, from its arrival to its end."""
        self._count_companions(arrival, 1)

    def order_nodes(self) -> None:
        """Have the decisions from now on order nodes by what the pods that wait and run now request."""
        if not self.replay_cluster.strands_least:
            return
        selectors = self.rules.selectors
        beside, kinds_of_use = self._companions.means(selectors), self._companions.kinds_of_use(selectors)
        if (beside, kinds_of_use) != (self.rules.beside, self.rules.kinds_of_use):
            self.rules = replace(self.rules, beside=beside, kinds_of_use=kinds_of_use)

    def _count_companions(self, arrival: Arrival, times: int) -> None:
        requested = arrival.pod_requests
        self._companions.add(requested.requests, requested.claims, pods=times * arrival.pods)

    def inputs(self, waiting: Waiting, queue_usage: QueueUsage) -> Inputs:
        """Return the inputs of a decision about a job now. queue_usage: the quotas in use."""
        group = arrivals.gang_of(waiting)
        self._claims.update((claim.meta.key, claim) for claim in waiting.claims)
        return Inputs(
            rules=self.rules,
            group=group,
            queue=self.replay_cluster.queue(waiting),
            cluster=self.virtual_cluster.cluster,
            queue_usage=queue_usage,
            known=waiting.known,
        )

    def decide(self, waiting: Waiting, queue_usage: QueueUsage | None = None) -> Verdict:
        """Return the controller's decision about a job now."""
        return chain.decide(self.inputs(waiting, queue_usage or self.queue_usage))

    def decide_backfill(
        self, waiting: Waiting, first: Decide, settled: Callable[[Verdict, Inputs, Decide], Verdict | None]
    ) -> Verdict | None:
        """Return the same, but without delaying the reservations of jobs ahead; None if the job waits for its turn.

        first: decides without these reservations. settled: returns the verdict that a job has with its turn, if it has.
        """
        inputs = self.inputs(waiting, self.queue_usage)
        verdict = settled(self.backfill.decide(inputs, first), inputs, self.backfill.decide)
        if verdict is None:
            return None
        self.backfill.note(verdict, inputs)
        if waiting.known is None and verdict.by in WAITING:
            requested = chain.with_demand(inputs)
            waiting.known = Known(
                group=requested.group, demands=requested.demands, needed=requested.needed, equivalent=verdict.equivalent
            )
        return verdict

    @property
    def time(self) -> datetime:
        """Return the present time."""
        return self.replay_cluster.rules.now + self.now

    def runtime_bound(self, bounds: Iterable[Sequence[Reservation]]) -> timedelta | None:
        """Return the runtime below which a job would conflict with fewer reservations; None for any runtime.

        bounds: the reservations with which the jobs before it conflict.
        """
        until = self.backfill.until(bounds)
        return None if until is None else runtime.floor_to_second(until) + runtime.SECOND - self.time

    def conflicts(self, verdict: Verdict) -> bool:
        """Return whether a job still conflicts with the reservations."""
        return self.backfill.stands(
            verdict, verdict.group.queue, self.virtual_cluster.cluster, self.queue_usage, self.rules.selectors
        )

    def explain(self, waiting: Waiting, queue_usage: QueueUsage | None = None) -> Verdict:
        """Decide about a job as `decide` does, with the planner's reason for a hold."""
        inputs = self.inputs(waiting, queue_usage or self.queue_usage)
        workspace = replace(self.rules.workspace, plans=PlanCache())
        return chain.decide(replace(inputs, rules=replace(self.rules, workspace=workspace, mute=False)))

    def needed(self, waiting: Waiting) -> Charge:
        """Return the least charge of a job; the same for all jobs with the same requests."""
        arrival = waiting.arrival
        key = (arrival.pod_requests, waiting.pods)
        if key not in self._needed:
            demands = demand.demands(self.inputs(waiting, self.queue_usage).group, self.rules.snapshot)
            self._needed[key] = demand.at_least(demands, self.rules.meters, self.rules.snapshot.nodes.values())
        return self._needed[key]

    def count(self, waiting: Waiting) -> tuple[Charge, Verdict | None]:
        """Return the least charge of a job, and the verdict of a check before planning that fails."""
        inputs = self.inputs(waiting, self.queue_usage)
        demands = demand.demands(inputs.group, self.rules.snapshot)
        needed = demand.at_least(demands, self.rules.meters, self.rules.snapshot.nodes.values())
        verdict = chain.first_failure(replace(inputs, demands=demands, needed=needed))
        return needed, None if verdict is None else replace(verdict, needed=needed)

    def charge(self, waiting: Waiting, charge: Charge) -> None:
        """Charge the queue of a job. The caller updates the fair shares."""
        self.queue_usage.charge(waiting.queue, charge)

    def change_nodes(self, come: Iterable[NodeToCome], gone: Collection[NodeName]) -> None:
        """Have nodes come, and others go on which nothing runs."""
        self.rules = replace(self.rules, snapshot=with_nodes(self.rules.snapshot, come, gone))
        snapshot = self.rules.snapshot
        self.virtual_cluster.change_nodes(snapshot.nodes, snapshot.slices, snapshot.taint_rules)
        if gone:
            self.rules.selectors.keep(self.virtual_cluster.cluster.node_inventories)
        self.rules.workspace.plans.forget_changes()
        self.backfill.require_proofs()

    def start(self, waiting: Waiting, plan: Plan, charge: Charge, kept: Iterable[RunningGang] = ()) -> Running:
        """Give a job its devices, from now until it ends. kept: what of them was kept for it until now."""
        running_gang = usage(waiting, plan)
        self.virtual_cluster.move(departed=kept, arrived=(running_gang,))
        for claim in waiting.claims:
            self._claims.pop(claim.meta.key, None)
        end = self.now + waiting.arrival.runtime
        running = Running(waiting=waiting, running_gang=running_gang, charge=charge, start=self.now, end=end)
        self._started += 1
        waiting.was_reclaimed = False
        heapq.heappush(self._ends, (end, self._started, running))
        return running

    @property
    def next_end(self) -> timedelta | None:
        """Return when the next job ends; None if none runs."""
        return self._ends[0][0] if self._ends else None

    @property
    def next_start(self) -> timedelta | None:
        """Return when the next reserved start is due."""
        due = self.backfill.next
        return None if due is None else due - self.replay_cluster.rules.now

    def nominated(self) -> Iterator[tuple[str, timedelta]]:
        """Yield the jobs with a reservation, and the reserved start of each."""
        for key, estimate in self.backfill.estimates.items():
            if estimate.at is not None:
                yield key, estimate.at - self.replay_cluster.rules.now

    def end_due(self) -> list[Running]:
        """End the jobs whose runtime is over, and return them."""
        ended: list[Running] = []
        while self._ends and self._ends[0][0] <= self.now:
            ended.append(heapq.heappop(self._ends)[2])
        for running in ended:
            self._count_companions(running.waiting.arrival, -1)
        self._release(ended)
        return ended

    @property
    def running(self) -> list[Running]:
        """Return the running jobs."""
        return [running for _, _, running in self._ends]

    def evict(self, running: Running) -> None:
        """End a job before its time."""
        self._ends = [one for one in self._ends if one[2] is not running]
        heapq.heapify(self._ends)
        self._release([running])

    def _release(self, ended: list[Running]) -> None:
        """Release the devices, quotas and shares of ended jobs."""
        if ended:
            self.virtual_cluster.move(departed=[running.running_gang for running in ended])
            self.rules.workspace.plans.forget_changes()
        self.backfill.move_to(self.time)
        for running in ended:
            self.backfill.end(running.waiting.key)
            self.queue_usage.give_back(running.waiting.queue, running.charge)
            self.shares.give_back(running.waiting.queue, running.charge)
