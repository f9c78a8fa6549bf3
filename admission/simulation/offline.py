"""Muster's decisions offline: the controller's own cycle over a cluster in memory, until nothing changes.

Called by `muster simulate`. The cluster comes from `expand`; what runs in the input is entered into the ledger first,
by `opening_balance`. After every cycle kube-scheduler is simulated, so that the next one sees the started pods. With
`until_empty`, running gangs end one after the other, and waiting ones are tried again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from fractions import Fraction

from admission import default_ports
from admission.api.capacity.node_shapes import MOST_NODES
from admission.api.kubernetes import device_taint_rules, meta
from admission.api.kubernetes.pods import DEFAULT_SCHEDULER
from admission.api.muster import gang_references, queue_references
from admission.api.muster.gangs import Charge, Evicted, GangReport, PlannedPod, TopologyReport
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.status_reports import ConditionReport, QueueReport
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid, NodeName, QueueName
from admission.api.values.reasons import Denial, DenyReason, Detail, Hold, HoldReason
from admission.api.values.references import EVERYWHERE
from admission.cycle import cycle
from admission.cycle.state.leader import Leader, Ports
from admission.cycle.state.result import CycleResult
from admission.cycle.state.term import CycleSettings
from admission.dra.state.nodes_to_come import NodeToCome
from admission.scheduling.capacity.node_needs import Bounds
from admission.scheduling.placement import protection
from admission.scheduling.placement.protection import Barriers
from admission.simulation import in_memory, opening_balance
from admission.simulation.expand import Expanded, RefusedGang
from admission.simulation.pods import LaterWave
from admission.status import later_waves, queue_sums
from admission.status.queue_sums import SubtreeSums
from admission.workloads import gangs

ACTOR = "muster simulate"
EPOCH = 1
STEPS = 50_000
"""The bound of a search, for each gang and question."""
STEP = timedelta(seconds=1)
"""The time between two cycles."""
MOST_GRANTS = 1_000
"""The most grants of a cycle: nobody waits here for those that were granted to be let in."""
TRIES = 10_000
"""The most numbers of nodes that are tried in a cycle to find out what gangs need of nodes that are not there."""


class Verdict(StrEnum):
    """The decision about a gang."""

    ADMITTED = "Admitted"
    HELD = "Held"
    DENIED = "Denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class GangOutcome:
    """The result of one gang. order: 1 for the first one admitted; None for gangs that ran at the start, or wait."""

    namespace: str
    name: str
    queue: QueueName
    verdict: Verdict
    reason: str | None = None
    message: str = ""
    details: Mapping[str, Detail] = field(default_factory=dict)
    placement: str = ""
    not_simulated: tuple[str, ...] = ()
    topology: TopologyReport | None = None
    order: int | None = None
    plan: tuple[PlannedPod, ...] = ()
    charges: Charge = field(default_factory=dict)
    later: tuple[str, ...] = ()
    """Of a gang that is admitted: why pods that its workload makes later never fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNodes:
    """The nodes of one shape that had to come. price: of one, per hour; None if it is not known.

    gangs: those that have pods on them, as `namespace/name`.
    """

    shape: str
    count: int
    price: Fraction | None
    gangs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a simulation: every gang, admitted ones first and in order, and the queues at the end.

    sums: of each queue with those below it. new_nodes: the nodes that had to come, by shape. snapshot, placements: the
    cluster at the end, with the gangs that have a place.
    """

    gangs: tuple[GangOutcome, ...]
    queues: tuple[QueueReport, ...]
    sums: Mapping[QueueName, SubtreeSums]
    conditions: tuple[ConditionReport, ...]
    new_nodes: tuple[NewNodes, ...] = ()
    snapshot: Snapshot = field(default_factory=Snapshot, repr=False)
    placements: tuple[Placement, ...] = field(default=(), repr=False)

    @property
    def verdicts(self) -> frozenset[Verdict]:
        return frozenset(gang.verdict for gang in self.gangs)


async def simulate(
    cluster_state: Expanded,
    *,
    until_empty: bool = False,
    with_shapes: bool = False,
    steps: int = STEPS,
    schedulers: frozenset[str] = frozenset({DEFAULT_SCHEDULER}),
    strands_least: bool = True,
) -> Outcome:
    """Run cycles until nothing more is admitted; with `until_empty`, until nothing waits or ends any more.

    with_shapes: whether nodes of the shapes come where gangs need them. schedulers: the setting
    `controller.schedulers`. strands_least: whether `controller.node_order` is least-stranded.
    """
    later: dict[str, tuple[str, ...]] = {}
    for wave, why in await never_fitting(cluster_state, steps):
        later[wave.uid] = (*later.get(wave.uid, ()), why)
    bounds = Bounds(tries=TRIES, nodes=MOST_NODES, share=1, pace=timedelta(0), together=with_shapes, asks=False)
    settings = CycleSettings(
        steps=steps,
        schedulers=schedulers,
        node_needs=bounds,
        most_grants=MOST_GRANTS,
        strands_least=strands_least,
    )
    run = _Run(cluster_state, settings, later)
    await run.begin()
    while True:
        result = await run.cycle()
        if result.granted or result.evicted or (with_shapes and run.add_nodes()):
            continue
        if not (until_empty and run.finish_one()):
            return run.outcome(result)


NEVER = frozenset({HoldReason.NO_FEASIBLE_PLACEMENT, HoldReason.QUOTA_EXCEEDED, *DenyReason})
"""Reasons for which a gang is not admitted to an empty cluster, ever."""


async def never_fitting(cluster_state: Expanded, steps: int = STEPS) -> list[tuple[LaterWave, str]]:
    """Return the later waves that would not fit an empty cluster, and why; of each wave the first that is known."""
    found: dict[tuple[str, tuple[str, ...]], tuple[LaterWave, str]] = {}
    for wave, alone in cluster_state.later:
        if (wave.uid, wave.roles) not in found:
            outcome = await simulate(alone, steps=steps)
            refused = [gang for gang in outcome.gangs if gang.verdict is not Verdict.ADMITTED and gang.reason in NEVER]
            for gang in refused[:1]:
                message = later_waves.reason(gang, alone.snapshot, wave.running_roles)
                why = later_waves.sentence(wave.roles, wave.running_roles, f"{gang.reason}: {message}")
                found[wave.uid, wave.roles] = (wave, why)
    return [*found.values()]


class _Run:
    """One simulation: its cluster and ledger, its clock, and the latest report of each gang.

    later: by workload, why pods that it makes later never fit.
    """

    def __init__(self, cluster_state: Expanded, settings: CycleSettings, later: Mapping[str, tuple[str, ...]]) -> None:
        self._cluster_state = cluster_state
        self._later = later
        self._now = cluster_state.now
        self._cluster = in_memory.Cluster(protection.without_fences(cluster_state.snapshot))
        self._ledger = in_memory.Ledger()
        cluster = self._cluster
        ports = Ports(
            view=cluster,
            pods=cluster,
            claims=cluster,
            workloads=cluster,
            reports=cluster,
            ledger=self._ledger,
            scheduler=default_ports.FixedScheduler(cluster_state.profile),
            fences=default_ports.NoFences(fences(cluster_state.snapshot)),
        )
        self._leader = Leader.build(ports=ports, actor=ACTOR, epoch=EPOCH, settings=settings)
        self._reports: dict[GangUid, GangReport] = {}
        self._running: list[GangUid] = []
        self._initially_running: frozenset[GangUid] = frozenset()
        self._order: dict[GangUid, int] = {}
        self._keys: dict[GangUid, str] = {}
        self._new_nodes: list[NodeToCome] = []
        self._evicted: dict[str, Evicted] = {}
        """Evicted gangs by key; for some only the Gang object is left."""

    async def begin(self) -> None:
        """Enter the running gangs into the ledger."""
        await self._ledger.fence(EPOCH)
        groups = gangs.groups(self._cluster_state.snapshot, {})
        self._keys = {group.uid: group.key for group in groups}
        running = sorted(
            (group for group in groups if opening_balance.placed(group)),
            key=lambda group: (group.first_queued, group.key),
        )
        entries = opening_balance.entries(running, self._cluster_state.snapshot, at=self._now, actor=ACTOR)
        await self._ledger.post_all([*entries], epoch=EPOCH)
        self._running = [group.uid for group in running]
        self._initially_running = frozenset(self._running)

    async def cycle(self) -> CycleResult:
        """Run one cycle, and let kube-scheduler start the admitted pods."""
        result = await cycle.run(self._leader, self._now)
        for uid, evicted in result.evicted.items():
            self._evicted[self._keys[uid]] = evicted
            self._order.pop(uid, None)
        for uid in result.granted:
            self._evicted.pop(self._keys[uid], None)
            if uid not in self._order:
                self._order[uid] = len(self._order) + 1
            if uid not in self._running:
                self._running.append(uid)
        uids_by_key = {report.key: uid for uid, report in self._reports.items()}
        for report in result.gangs:
            if report.key in self._evicted and uids_by_key.get(report.key, report.uid) != report.uid:
                continue
            previous = self._reports.get(report.uid)
            # Nothing more is asked of pods that are bound; the result is about those that waited.
            unjudged = report.not_simulated or (previous.not_simulated if previous is not None else ())
            # A gang that has ended has no plan any more; the result shows the plan that it was admitted with.
            if report.plan or previous is None or not previous.plan:
                self._reports[report.uid] = replace(report, not_simulated=unjudged)
        self._cluster.schedule(self._ledger.book)
        self._now += STEP
        return result

    def finish_one(self) -> bool:
        """End the gang that has run longest, if any gang waits. Return whether one was ended."""
        snapshot = self._cluster.snapshot()
        groups = {group.uid: group for group in gangs.groups(snapshot, self._ledger.book.placements)}
        if not any(group.waiting for group in groups.values()):
            return False
        while self._running:
            group = groups.get(self._running.pop(0))
            if group is not None and (ready := opening_balance.placed(group)):
                self._cluster.finish(ready)
                return True
        return False

    def add_nodes(self) -> bool:
        """Have the nodes come that held gangs need. Return whether there are any."""
        new = [node for needed in self._leader.node_needs.needed.values() for node in needed.nodes]
        self._cluster.add_nodes([one.node for one in new], [piece for one in new for piece in one.slices])
        self._new_nodes += new
        return bool(new)

    def _new_by_shape(self, reported: Iterable[GangOutcome]) -> tuple[NewNodes, ...]:
        """Return the nodes that came and are used."""
        users: dict[NodeName, dict[str, None]] = {}
        for gang in reported:
            for place in gang.plan:
                users.setdefault(place.node, {})[f"{gang.namespace}/{gang.name}"] = None
        shapes = self._cluster_state.snapshot.shapes
        used = [one for one in self._new_nodes if one.node.name in users]
        return tuple(
            NewNodes(
                shape=shape,
                count=sum(one.shape == shape for one in used),
                price=shapes[shape].price,
                gangs=tuple(dict.fromkeys(gang for one in used if one.shape == shape for gang in users[one.node.name])),
            )
            for shape in sorted({one.shape for one in used})
        )

    def outcome(self, result: CycleResult) -> Outcome:
        refused = self._cluster_state.refusals
        display_names = _DisplayNames({report.key: self._key(report) for report in self._reports.values()})
        reported = [
            self._with_names(report, display_names) for uid, report in self._reports.items() if uid not in refused
        ]
        reported += [_refused(refusal) for refusal in refused.values()]
        reported.sort(
            key=lambda gang: (gang.verdict is not Verdict.ADMITTED, gang.order or 0, gang.namespace, gang.name)
        )
        reports = {report.name: queue_references.for_reader(report, EVERYWHERE) for report in result.queues}
        return Outcome(
            gangs=tuple(reported),
            queues=tuple(reports.values()),
            sums=queue_sums.sums(reports, self._cluster_state.snapshot.queues),
            conditions=result.conditions,
            new_nodes=self._new_by_shape(reported),
            snapshot=self._cluster.snapshot(),
            placements=tuple(self._ledger.book.placements.values()),
        )

    def _key(self, report: GangReport) -> str:
        """Return the gang's key; with its workload's name if the key would contain an invented UID."""
        workload = report.workload
        if workload is not None and workload.uid in self._cluster_state.invented:
            return f"{report.namespace}/{workload.name}"
        return report.key

    def _with_names(self, report: GangReport, display_names: "_DisplayNames") -> GangOutcome:
        # Whoever has all manifests may read every name.
        report = gang_references.for_reader(report, EVERYWHERE)
        if report.key in self._evicted:
            return self._evicted_outcome(
                report, gang_references.evicted_for_reader(self._evicted[report.key], EVERYWHERE), display_names
            )
        order = self._order.get(report.uid)
        was_running = report.uid in self._initially_running
        hold = None if was_running or order is not None else report.hold
        message = "its pods run already" if was_running else ""
        return GangOutcome(
            namespace=report.namespace,
            name=self._key(report).rpartition("/")[2],
            queue=report.queue,
            verdict=_verdict(hold),
            reason=hold.reason if hold else None,
            message=display_names.with_names(hold.message) if hold else message,
            details={name: display_names.detail_with_names(value) for name, value in hold.details.items()}
            if hold
            else {},
            placement=report.placement,
            not_simulated=report.not_simulated,
            topology=report.topology,
            order=order,
            plan=report.plan,
            charges=report.charges,
            later=self._later.get(report.workload.uid, ()) if report.workload and hold is None else (),
        )

    def _evicted_outcome(self, report: GangReport, evicted: Evicted, display_names: "_DisplayNames") -> GangOutcome:
        """Return the result of an evicted gang: no controller recreates its pods here."""
        return GangOutcome(
            namespace=report.namespace,
            name=self._key(report).rpartition("/")[2],
            queue=report.queue,
            verdict=Verdict.HELD,
            reason=evicted.reason,
            message=f"it is evicted as a whole: {display_names.with_names(evicted.message)}",
            details={"madeRoomFor": display_names.with_names(evicted.made_room_for)} if evicted.made_room_for else {},
        )


def fences(snapshot: Snapshot) -> Barriers:
    """Return the fences in the input, as if they had been in force for long."""
    drivers = sorted(filter(None, map(device_taint_rules.fenced_driver, snapshot.taint_rules.values())))
    return Barriers(fence=tuple(drivers), rules=dict.fromkeys(drivers, meta.EPOCH), policy=meta.EPOCH)


class _DisplayNames:
    """The names of gangs for people, also used to replace keys in messages."""

    def __init__(self, by_key: Mapping[str, str]) -> None:
        self._replaced = {key: name for key, name in by_key.items() if key != name}

    def with_names(self, text: str) -> str:
        for key, name in self._replaced.items():
            text = text.replace(key, name)
        return text

    def detail_with_names(self, value: Detail) -> Detail:
        if isinstance(value, list):
            return [self.with_names(item) for item in value]
        return self.with_names(value) if isinstance(value, str) else value


def _verdict(hold: Hold | Denial | None) -> Verdict:
    if hold is None:
        return Verdict.ADMITTED
    return Verdict.HELD if isinstance(hold, Hold) else Verdict.DENIED


def _refused(refusal: RefusedGang) -> GangOutcome:
    identity, denial = refusal.identity, refusal.denial
    return GangOutcome(
        namespace=identity.namespace,
        name=identity.workload.name if identity.workload else identity.name,
        queue=refusal.queue,
        verdict=Verdict.DENIED,
        reason=denial.reason,
        message=denial.message,
        details=denial.details,
    )
