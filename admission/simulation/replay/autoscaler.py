"""The autoscaler of a replay: nodes of NodeShapes that come some time after jobs need them, and go when they are idle.

Which nodes a job needs is found as the controller finds it (`scheduling.capacity.node_needs`), of all queues, by the
quota that is left. From then on its quota is used, and its places are kept: on nodes that are there, on those that are
starting, and on new ones. It starts when the last of its nodes has come. What is left on a node that is starting is
given to the next job that needs nodes, as autoscalers count on it. Nodes of the input never go.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fractions import Fraction

from admission.api.muster.gangs import Charge
from admission.api.values.names import GangUid, NodeName
from admission.dra.requests.gang_request import Plan
from admission.dra.state.nodes_to_come import NodeToCome
from admission.dra.state.virtual_time import RunningGang, VirtualCluster
from admission.quota.headroom import QueueUsage
from admission.scheduling.capacity import node_needs
from admission.scheduling.capacity.node_needs import Bounds, NodesNeeded
from admission.scheduling.checks.chain import Grant, Workspace
from admission.simulation.replay import arrivals, cluster
from admission.simulation.replay.arrivals import Waiting
from admission.simulation.replay.cluster import Clock, Running

BOUNDS = Bounds(tries=10_000, together=True, asks=False)
"""How much is asked at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """startup: from when a node is asked for until it is there. idle: how long nothing runs on it before it goes."""

    startup: timedelta
    idle: timedelta


@dataclass(slots=True, kw_only=True, eq=False)
class NodeLife:
    """A node that was bought: when it was asked for, came and went. price: per hour; None if it is not known.

    busy: for how long jobs had a place on it. users: how many pods have one now. devices: by driver.
    """

    node: NodeToCome
    price: Fraction | None
    devices: Counter[str]
    asked_at: timedelta
    up_at: timedelta
    gone_at: timedelta | None = None
    busy: timedelta = timedelta()
    users: int = 0
    changed_at: timedelta = timedelta()
    """When it was last used, or idle, until then; while it starts, when it comes."""

    @property
    def shape(self) -> str:
        return self.node.shape

    @property
    def name(self) -> NodeName:
        return self.node.node.name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _PendingJob:
    """A job that waits for nodes. use: what it will use. kept: of that what is on nodes that are there."""

    waiting: Waiting
    plan: Plan
    charge: Charge
    use: RunningGang
    kept: RunningGang


@dataclass(slots=True)
class Autoscaler:
    """The nodes that come and go in one replay. Rule: only this class changes its fields."""

    clock: Clock
    delays: Delays
    lives: list[NodeLife] = field(default_factory=list)
    """All nodes that were asked for, in order."""
    _starting: dict[NodeName, NodeLife] = field(default_factory=dict)
    _up: dict[NodeName, NodeLife] = field(default_factory=dict)
    _pending: list[_PendingJob] = field(default_factory=list)

    @property
    def next(self) -> timedelta | None:
        """Return when the next node comes, or goes if it stays idle; None if there is none."""
        comes = (one.up_at for one in self._starting.values())
        goes = (one.changed_at + self.delays.idle for one in self._up.values() if not one.users)
        return min((*comes, *goes), default=None)

    @property
    def devices(self) -> Counter[str]:
        """Return the devices of the nodes that are up, by driver."""
        return sum((one.devices for one in self._up.values()), Counter[str]())

    def come_due(self) -> list[Running] | None:
        """Have the nodes come that are due; start the jobs of which all nodes are there; None if no node comes."""
        clock = self.clock
        come = [one for one in self._starting.values() if one.up_at <= clock.now]
        if not come:
            return None
        clock.change_nodes([one.node for one in come], ())
        for one in come:
            self._up[one.name] = self._starting.pop(one.name)
        pending, self._pending = self._pending, []
        started: list[Running] = []
        for job in pending:
            self._count(job.kept, -1)
            if any(name in self._starting for name, _ in job.use.requests):
                self._keep(job)
                continue
            queue = clock.replay_cluster.queue(job.waiting)
            clock.backfill.start(arrivals.gang_of(job.waiting), queue, job.plan)
            started.append(clock.start(job.waiting, job.plan, job.charge, (job.kept,)))
        return started

    def go_due(self) -> bool:
        """Have the nodes go that were idle for long enough; return whether there are any."""
        until = self.clock.now - self.delays.idle
        due = [one for one in self._up.values() if not one.users and one.changed_at <= until]
        for one in due:
            del self._up[one.name]
            one.gone_at = self.clock.now
        if due:
            self.clock.change_nodes((), {one.name for one in due})
        return bool(due)

    def note(self, running: Running, times: int) -> None:
        """Count the pods of a job that starts (1) or ends (-1) on their nodes."""
        self._count(running.running_gang, times)

    def needs(self, short: Sequence[Waiting], queue_usage: QueueUsage) -> list[tuple[Waiting, NodesNeeded, Grant]]:
        """Return what jobs need of nodes that are not there, each with the grant with which it would start.

        short: jobs that are held for want of devices, in order. queue_usage: the quotas in use.
        """
        clock, starting = self.clock, [one.node for one in self._starting.values()]
        for waiting in short:
            clock.inputs(waiting, queue_usage)  # adds its claims to the snapshot
        # A state of its own, since no other may follow the present one of the clock.
        ahead, snapshot = VirtualCluster(replace(clock.virtual_cluster.cluster)), clock.rules.snapshot
        if starting:
            snapshot = cluster.with_nodes(snapshot, starting)
            ahead.change_nodes(snapshot.nodes, snapshot.slices, snapshot.taint_rules)
            ahead.move(arrived=[_part(one.use, self._starting.keys(), is_there=False) for one in self._pending])
        by_uid = {GangUid(waiting.key): waiting for waiting in short}
        groups = [arrivals.gang_of(waiting) for waiting in short]
        rules = replace(clock.rules, snapshot=snapshot, workspace=Workspace())
        found = node_needs.assess(groups, rules, ahead.cluster, queue_usage.copy(), bounds=BOUNDS).needed
        return [(by_uid[uid], needed, needed.grant) for uid, needed in found.items() if needed.grant is not None]

    def expect(self, waiting: Waiting, nodes: Iterable[NodeToCome], plan: Plan, charge: Charge) -> None:
        """Have nodes start, and keep the places of the job that starts when they have come."""
        now, shapes = self.clock.now, self.clock.rules.snapshot.shapes
        for node in nodes:
            up_at, devices = now + self.delays.startup, Counter[str]()
            for one in node.slices:
                devices[one.driver] += len(one.devices)
            price = shapes[node.shape].price
            life = NodeLife(node=node, price=price, devices=devices, asked_at=now, up_at=up_at, changed_at=up_at)
            self.lives.append(life)
            self._starting[life.name] = life
        use = cluster.usage(waiting, plan)
        self._keep(_PendingJob(waiting=waiting, plan=plan, charge=charge, use=use, kept=RunningGang()))

    def _keep(self, job: _PendingJob) -> None:
        """Keep what a job will use of the nodes that are there."""
        kept = _part(job.use, self._starting.keys(), is_there=True)
        self.clock.virtual_cluster.move(departed=(job.kept,), arrived=(kept,))
        self._count(kept, 1)
        self._pending.append(replace(job, kept=kept))

    def _count(self, use: RunningGang, times: int) -> None:
        now = self.clock.now
        for name, _ in use.requests:
            life = self._up.get(name)
            if life is None:
                continue
            before, life.users = life.users, life.users + times
            if bool(before) != bool(life.users):
                life.busy += (now - life.changed_at) if before else timedelta()
                life.changed_at = now


def _part(use: RunningGang, starting: Collection[NodeName], *, is_there: bool) -> RunningGang:
    """Return what a job uses of nodes that are there, or of those that are starting, whose pools have their names."""
    return RunningGang(
        uses=tuple(
            (holder, tuple(one for one in uses if (one.device.pool in starting) is not is_there))
            for holder, uses in use.uses
        ),
        requests=tuple(one for one in use.requests if (one[0] in starting) is not is_there),
    )
