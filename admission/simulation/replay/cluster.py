"""The cluster that a trace is played on: what stands still in it, and what moves while jobs come and go.

What the input shows as running has its devices and its quota from the beginning to the end.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from admission.accounting.books import Book
from admission.api.kubernetes.claims import Claim
from admission.api.muster.gangs import Charge
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.traces import Arrival
from admission.api.values.names import QueueName
from admission.cel import limits
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters
from admission.dra.requests.device_use import Holder
from admission.dra.requests.gang_request import Plan
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.virtual_time import RunningGang, VirtualCluster
from admission.errors import Problem
from admission.quota import fair_share, queue_order
from admission.quota.fair_share import Shares
from admission.quota.headroom import QueueUsage, Usage
from admission.quota.tree import Tree
from admission.scheduling.backfill.policy import WAITING, Backfill
from admission.scheduling.backfill.reservations import Reservation
from admission.scheduling.backfill.running import RunningGangs
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.cache.verdict_cache import Verdict, VerdictCache
from admission.scheduling.checks import chain, demand, runtime
from admission.scheduling.checks.chain import Inputs, Known, Rules
from admission.scheduling.placement import protection
from admission.scheduling.placement.protection import FenceInputs
from admission.simulation import offline, opening_balance
from admission.simulation.expand import Expanded
from admission.simulation.replay import arrivals
from admission.simulation.replay.arrivals import Waiting
from admission.workloads import gangs
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What stands still: nodes, devices, queues and meters, and what runs there from the beginning.

    left_out: gangs of the input that wait, and take no part.
    """

    cluster: ClusterState
    snapshot: Snapshot
    tree: Tree
    usage: Usage
    rules: Rules
    left_out: tuple[str, ...] = ()

    def queue(self, waiting: Waiting) -> Queue:
        return self.snapshot.queues[waiting.queue]


def build_cluster(cluster: Expanded, *, steps: int) -> Cluster:
    """Return the cluster that the input describes. Raises FixError where what runs cannot be charged."""
    snapshot = protection.without_fences(cluster.snapshot)
    groups = gangs.groups(snapshot, {})
    running = [group for group in groups if opening_balance.placed(group)]
    book = Book()
    for entry in opening_balance.entries(running, snapshot, at=cluster.now, actor=offline.ACTOR):
        book = book.apply(entry)
    placements = book.placements.values()
    barriers = offline.fences(cluster.snapshot)
    scene = FenceInputs(barriers=barriers, snapshot=cluster.snapshot, placements=placements, now=cluster.now)
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
        protection=protection.judge(scene).protections,
    )
    return Cluster(
        cluster=cluster_state.build(snapshot, placements, profile=cluster.profile),
        snapshot=snapshot,
        tree=tree,
        usage={queue: {meter: sum(use) for meter, use in meters.items()} for queue, meters in book.usage().items()},
        rules=rules,
        left_out=tuple(
            sorted(_name(group, cluster) for group in groups if group.waiting and not opening_balance.placed(group))
        ),
    )


def _name(group: Group, cluster: Expanded) -> str:
    """Return what people call a gang: its workload, where a made-up UID would stand behind the name."""
    workload = group.identity.workload
    invented = workload is not None and workload.uid in cluster.invented
    return f"{group.identity.namespace}/{workload.name}" if workload is not None and invented else group.key


def shortages(replayed: Cluster, arrivals: Iterable[Arrival]) -> list[tuple[int, Problem]]:
    """Return what jobs name that the cluster does not have or take, each once, with the line of the first of them."""
    found: dict[tuple[str, str], tuple[int, Problem]] = {}
    for arrival in arrivals:
        for name, value, judge in _named(arrival):
            if (name, value) not in found:
                message = judge(replayed, value)
                found[name, value] = arrival.line, Problem(name, message)
    return [(line, problem) for line, problem in found.values() if problem.message]


_Judge = Callable[[Cluster, str], str]


def _named(arrival: Arrival) -> Iterator[tuple[str, str, _Judge]]:
    """Yield field and value of all that a job names, and what judges it."""
    yield "queue", arrival.queue, _judge_queue
    for at, spec in enumerate(arrival.pod_requests.claims):
        for option in (option for request in spec.requests for option in request.alternatives):
            yield f"claims[{at}].class", option.device_class, _judge_class
            yield from ((f"claims[{at}].selectors", text, _judge_selector) for text in option.selectors)


def _judge_queue(replayed: Cluster, name: str) -> str:
    queue = replayed.snapshot.queues.get(QueueName(name))
    if queue is None:
        return f"there is no Queue {name} in the input; add it to the PATHs, or name another"
    if queue.namespaces is None:
        return f"nobody enters queue {name} directly, as it has no spec.namespaceSelector; name one below it"
    return ""


def _judge_class(replayed: Cluster, name: str) -> str:
    known = name in replayed.snapshot.classes
    return "" if known else f"there is no DeviceClass {name} in the input; add it to the PATHs, or name another"


def _judge_selector(replayed: Cluster, text: str) -> str:
    objection = limits.check(text, profile=replayed.cluster.profile.cel)
    return f"{text!r} is not CEL that Kubernetes takes: {objection.message}" if objection is not None else ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Running:
    """A job that runs. charge: what its queue uses for it."""

    waiting: Waiting
    running_gang: RunningGang
    charge: Charge
    start: timedelta
    end: timedelta


@dataclass(slots=True)
class Clock:
    """What moves: the time since the trace began, the devices and quotas in use, and the jobs that run."""

    replayed: Cluster
    rules: Rules = field(init=False)
    virtual_cluster: VirtualCluster = field(init=False)
    queue_usage: QueueUsage = field(init=False)
    shares: Shares = field(init=False)
    reserve: Backfill = field(init=False)
    now: timedelta = timedelta()
    _claims: dict[str, Claim] = field(init=False)
    _ends: list[tuple[timedelta, int, Running]] = field(default_factory=list)
    _started: int = 0

    def __post_init__(self) -> None:
        replayed = self.replayed
        self._claims = dict(replayed.snapshot.claims)
        # The mapping is this stage's own, and grows and shrinks with the jobs that are looked at.
        snapshot = replace(replayed.snapshot, claims=self._claims)
        # So is what is remembered of devices in use: the ward's cluster states change under who has seen an earlier
        # one.
        own = Selectors(replayed.cluster.profile.cel)
        rules = replace(replayed.rules, snapshot=snapshot, selectors=own, plans=PlanCache(), rest=VerdictCache())
        self.rules = replace(rules, defects=[], mute=True)
        self.virtual_cluster = VirtualCluster(replayed.cluster)
        self.queue_usage = QueueUsage(replayed.tree, replayed.usage)
        self.shares = Shares(self.queue_usage, replayed.usage, replayed.rules.sharing)
        self.reserve = Backfill(RunningGangs(replayed.rules.now))

    def inputs(self, waiting: Waiting, queue_usage: QueueUsage) -> Inputs:
        """Return what a job is decided on now. standing: what the quotas leave."""
        group = arrivals.made(waiting)
        self._claims.update((claim.meta.key, claim) for claim in waiting.claims)
        return Inputs(
            rules=self.rules,
            group=group,
            queue=self.replayed.queue(waiting),
            cluster=self.virtual_cluster.cluster,
            queue_usage=queue_usage,
            known=waiting.known,
        )

    def decide(self, waiting: Waiting, queue_usage: QueueUsage | None = None) -> Verdict:
        """Return what the controller would decide about a job now."""
        return chain.decide(self.inputs(waiting, queue_usage or self.queue_usage))

    def backfill(self, waiting: Waiting) -> Verdict:
        """Return the same, and heed what is reserved for those ahead of it."""
        inputs = self.inputs(waiting, self.queue_usage)
        found = self.reserve.decide(inputs)
        self.reserve.note(found, inputs)
        if waiting.known is None and found.by in WAITING:
            asked = chain.asked(inputs)
            waiting.known = Known(
                group=asked.group, demands=asked.demands, needed=asked.needed, equivalent=found.equivalent
            )
        return found

    @property
    def time(self) -> datetime:
        """Return what time it is."""
        return self.replayed.rules.now + self.now

    def shorter(self, waiting: Waiting, bounds: Iterable[Sequence[Reservation]]) -> timedelta | None:
        """Return than what a job behind another one must run for shorter to be in the way of less; None: than nothing.

        bounds: what others before it were in the way of.
        """
        until = self.reserve.until(queue_order.rank(waiting), bounds)
        return None if until is None else runtime.whole(until) + runtime.SECOND - self.time

    def is_in_the_way(self, held: Verdict) -> bool:
        """Return whether a job is still in the way of what is reserved."""
        return self.reserve.stands(
            held, held.group.queue, self.virtual_cluster.cluster, self.queue_usage, self.rules.selectors
        )

    def explain(self, waiting: Waiting, queue_usage: QueueUsage | None = None) -> Verdict:
        """Decide about a job as `decide` does, and say why the planner holds it."""
        inputs = self.inputs(waiting, queue_usage or self.queue_usage)
        return chain.decide(replace(inputs, rules=replace(self.rules, plans=PlanCache(), mute=False)))

    def count(self, waiting: Waiting) -> tuple[Charge, Verdict | None]:
        """Return the least that a job costs, and what objects to it before anything is planned."""
        inputs = self.inputs(waiting, self.queue_usage)
        demands = demand.demands(inputs.group, self.rules.snapshot)
        needed = demand.at_least(demands, self.rules.meters, self.rules.snapshot.nodes.values())
        found = chain.first_failure(replace(inputs, demands=demands, needed=needed))
        if found is not None:
            found.needed = needed
        return needed, found

    def charge(self, waiting: Waiting, charge: Charge) -> None:
        """Let the queue of a job use what it is charged. The shares are the caller's to keep."""
        self.queue_usage.charge(waiting.queue, charge)

    def start(self, waiting: Waiting, plan: Plan, charge: Charge) -> Running:
        """Give a job its devices, from now until it ends."""
        pods = {pod.meta.uid: pod for pod in arrivals.made(waiting).pods}
        running_gang = RunningGang(
            uses=tuple(
                (Holder(claim=claim.claim, gang=waiting.key), plan.uses.get(claim.uid, ()))
                for pod in plan.pods
                for claim in pod.claims
            ),
            requests=tuple((place.node, pods[place.uid].requests) for place in plan.pods),
        )
        self.virtual_cluster.move(came=(running_gang,))
        for claim in waiting.claims:
            self._claims.pop(claim.meta.key, None)
        end = self.now + waiting.arrival.runtime
        running = Running(waiting=waiting, running_gang=running_gang, charge=charge, start=self.now, end=end)
        self._started += 1
        heapq.heappush(self._ends, (end, self._started, running))
        return running

    @property
    def next_end(self) -> timedelta | None:
        """Return when the next job ends; None where none runs."""
        return self._ends[0][0] if self._ends else None

    @property
    def next_start(self) -> timedelta | None:
        """Return when the next of those that something is reserved for is to start."""
        due = self.reserve.next
        return None if due is None else due - self.replayed.rules.now

    def nominated(self) -> Iterator[tuple[str, timedelta]]:
        """Yield the jobs that something is reserved for, and from when on."""
        for key, estimate in self.reserve.estimates.items():
            if estimate.at is not None:
                yield key, estimate.at - self.replayed.rules.now

    def end_due(self) -> list[Running]:
        """End the jobs whose time is up, and return them."""
        ended: list[Running] = []
        while self._ends and self._ends[0][0] <= self.now:
            ended.append(heapq.heappop(self._ends)[2])
        self._let_go(ended)
        return ended

    @property
    def running(self) -> list[Running]:
        """Return the jobs that run."""
        return [running for _, _, running in self._ends]

    def evict(self, running: Running) -> None:
        """End a job before its time."""
        self._ends = [one for one in self._ends if one[2] is not running]
        heapq.heapify(self._ends)
        self._let_go([running])

    def _let_go(self, ended: list[Running]) -> None:
        """Take back what jobs had."""
        if ended:
            self.virtual_cluster.move(went=[running.running_gang for running in ended])
            self.rules.plans.forget_changes()
        self.reserve.present.now = self.time
        for running in ended:
            self.reserve.end(running.waiting.key)
            self.queue_usage.give_back(running.waiting.queue, running.charge)
            self.shares.give_back(running.waiting.queue, running.charge)
