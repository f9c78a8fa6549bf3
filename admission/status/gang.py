"""The status of every gang and meter, from one snapshot and the decisions of its cycle.

`queue` builds that of queues, from the same inputs.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from admission.accounting.books import Book
from admission.api.device_use.idle import IdleDevices
from admission.api.device_use.memory import MemoryExceeded
from admission.api.kubernetes.meta import EPOCH, Condition, ConditionStatus
from admission.api.kubernetes.pods import DEFAULT_SCHEDULER, Pod
from admission.api.muster import gang_references
from admission.api.muster.gang_requests import AnsweredRequest
from admission.api.muster.gangs import Charge, Evicted, Gang, GangReport, Phase, PlannedClaim, PlannedPod
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import PlacementMode
from admission.api.muster.status_reports import BudgetUse, ConditionReport
from admission.api.snapshot import Snapshot
from admission.api.values import names, references
from admission.api.values.names import GangUid, MeterName, QueueName, Uid
from admission.api.values.reasons import Denial, Hold, HoldReason
from admission.api.values.references import Kind, Reference, References, Referent
from admission.claimpolicy import status
from admission.claimpolicy.match import Policies
from admission.dra.compatibility import SchedulerProfile
from admission.dra.metering import meter_health
from admission.dra.metering.device_meters import Meters
from admission.dra.metering.meter_health import MeterHealth
from admission.errors import MalformedObjectError
from admission.lifecycle import placement_progress, refusals
from admission.lifecycle.requeue_backoff import Backoff
from admission.quota.tree import Tree
from admission.scheduling.backfill.reservations import Estimate
from admission.scheduling.capacity import node_needs
from admission.scheduling.capacity.node_needs import NodesNeeded
from admission.scheduling.checks.chain import Decision, Grant
from admission.scheduling.placement.mode import Chosen
from admission.scheduling.placement.protection import NOTHING, Protections
from admission.status import node_shapes, not_simulated
from admission.workloads import gang_key, topology
from admission.workloads.gangs import Group
from admission.workloads.kinds import podgroup, registry

KEPT = frozenset({node_shapes.UP})
"""What stays in the status of a NodeShape that cannot be read: only there is it known when its nodes were last up."""


NO_POLICIES = Policies({}, {})


class ReportedPlacement(NamedTuple):
    """Which side chose a gang's devices, and why."""

    mode: str
    reason: str
    references: References = ()


NOT_PLACED = ReportedPlacement("", "")
PINNED = ReportedPlacement(PlacementMode.PIN, "")
"""The mode reported for a placed gang without any record of its mode."""

PREEMPTED_RETENTION = timedelta(hours=1)
"""How long the Gang object of a preempted gang outlives its pods, if only these name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusInputs:
    """The inputs of the statuses of gangs and queues after a cycle."""

    snapshot: Snapshot
    book: Book
    tree: Tree
    records_use: bool = True
    """Whether it is recorded what devices do."""
    idle: Mapping[GangUid, IdleDevices] = field(default_factory=dict)
    """The gangs whose devices are in less use than their queues allow."""
    over_memory: Mapping[GangUid, MemoryExceeded] = field(default_factory=dict)
    """The gangs of whose devices more memory is in use than was asked for."""
    decisions: Mapping[GangUid, Decision] = field(default_factory=dict)
    backoffs: Mapping[GangUid, Backoff] = field(default_factory=dict)
    evicted: Mapping[GangUid, Evicted] = field(default_factory=dict)
    """Evicted gangs that do not run again yet."""
    answered: Mapping[GangUid, AnsweredRequest] = field(default_factory=dict)
    """The last requests that this leader has answered."""
    budgets: Mapping[QueueName, tuple[BudgetUse, ...]] = field(default_factory=dict)
    """The use of each queue's budgets; empty while unknown."""
    chosen: Mapping[GangUid, Chosen] = field(default_factory=dict)
    """The placement of gangs that this leader has admitted."""
    protections: Protections = NOTHING
    later: Mapping[GangUid, tuple[str, ...]] = field(default_factory=dict)
    """Why pods that a workload makes later never fit, by the UID of the workload."""
    needed: Mapping[GangUid, NodesNeeded] = field(default_factory=dict)
    """What held gangs need of nodes that are not there."""
    schedulers: frozenset[str] = frozenset({DEFAULT_SCHEDULER})
    """The profiles of kube-scheduler that plans predict."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """By deleted queue, why Muster's finalizer cannot be removed."""
    estimates: Mapping[GangUid, Estimate] = field(default_factory=dict)
    """The estimated starts of waiting gangs, if computed."""
    placement_holds: Mapping[GangUid, Hold] = field(default_factory=dict)
    """By reserved gang, what keeps it from being placed."""
    scheduler: SchedulerProfile | None = field(default_factory=SchedulerProfile)
    """The kube-scheduler that plans follow; None if its release is older than every known one."""
    now: datetime = EPOCH
    _identified: dict[int, tuple[Reference, Reference]] = field(default_factory=dict, compare=False)
    """By identity, references with what the snapshot knows of their objects: equivalent gangs have the same ones."""

    def identify(self, reference: Reference) -> Reference:
        """Return a reference with the UIDs and queues of its objects."""
        known = self._identified.get(id(reference))
        if known is None:
            found = references.identify(reference, lambda one: _identified(one, self.snapshot))
            known = self._identified[id(reference)] = reference, found
        return known[1]


def gang(group: Group, inputs: StatusInputs) -> GangReport:
    """Return the status of one gang."""
    decision = inputs.decisions.get(group.uid)
    placement = inputs.book.placements.get(group.uid)
    backoff = inputs.backoffs.get(group.uid)
    phase = phase_of(group, placement)
    is_waiting = decision is not None and not isinstance(decision.outcome, Grant)
    expected = sum(names.is_expected(pod.meta.uid) for pod in group.pods)
    placed = _placed(group, inputs) if placement is not None and not expected else NOT_PLACED
    estimate = inputs.estimates.get(group.uid) if is_waiting else None
    report = GangReport(
        uid=group.uid,
        namespace=group.identity.namespace,
        name=group.identity.name,
        queue=group.queue,
        size=min(group.identity.size or max(1, len(group.pods)), gang_key.LARGEST_SIZE),
        priority=group.priority,
        workload=group.identity.workload,
        phase=phase,
        pods=len(group.pods) - expected,
        expected=expected,
        hold=_with_nodes(with_malformed_hardware(_hold(decision), inputs.snapshot), inputs.needed.get(group.uid))
        or _placement_hold(group, placement, phase, inputs),
        needed=decision.needed if is_waiting and decision is not None else {},
        position=decision.position if is_waiting and decision is not None else None,
        plan=_plan(placement),
        charges=charge_of(placement),
        placement=placed.mode,
        placement_reason=placed.reason,
        placement_references=placed.references,
        not_simulated=_not_simulated(group, inputs),
        later=_later(group, inputs),
        topology=topology.report(group, inputs.snapshot.nodes),
        idle=inputs.idle.get(group.uid),
        memory=inputs.over_memory.get(group.uid),
        evictions=backoff.evictions if backoff else 0,
        evicted=inputs.evicted.get(group.uid),
        answered=inputs.answered.get(group.uid, group.record.answered if group.record is not None else None),
        start_estimate=estimate.at if estimate is not None else None,
        start_reason=estimate.message if estimate is not None else "",
        start_references=estimate.references if estimate is not None else (),
        queued_since=group.first_queued,
        next_try=backoff.next_try if backoff else None,
        refused=refusals.written(backoff.refusals) if backoff else (),
        position_key=group.identity.position_key,
    )
    return with_uids(report, inputs)


def _not_simulated(group: Group, inputs: StatusInputs) -> tuple[str, ...]:
    """Return what is not simulated of a gang's pods, and of those that its workload makes when they are scheduled."""
    parents, owner = inputs.snapshot.parents, group.identity.workload
    workload = parents.get(registry.kind_of(owner), {}).get(owner.uid) if owner is not None else None
    of_pods = not_simulated.of_pods(
        group.pods, inputs.snapshot.storage, inputs.schedulers, parents.get(podgroup.GANGS.key, {})
    )
    if workload is None:
        return of_pods
    if topology.plans_followers(group):
        volumes = not_simulated.of_volumes_of_followers(group.pods, workload, inputs.snapshot.storage)
        return (*of_pods, *volumes)
    return (*of_pods, *not_simulated.of_followers(group.pods, workload))


def _later(group: Group, inputs: StatusInputs) -> tuple[str, ...]:
    """Return why pods that come after a gang never fit, of the gang of a workload's first pods."""
    workload = group.identity.workload
    if workload is None or group.identity.wave or not group.pods:
        return ()
    return inputs.later.get(GangUid(workload.uid), ())


def with_uids(report: GangReport, inputs: StatusInputs) -> GangReport:
    """Return a report with the UIDs of what it refers to, by which others and the next leader find it."""
    return gang_references.identified(report, inputs.identify)


def _identified(referent: Referent, snapshot: Snapshot) -> Referent:
    """Return what a status refers to with its UID, and with the UID and queue of its gang, as far as they are known."""
    key = referent.key if referent.kind is Kind.GANG else referent.gang
    record, claim = snapshot.gangs.get(key), snapshot.claims.get(referent.key)
    found = replace(referent, queue=referent.queue or record.queue) if record is not None else referent
    if referent.kind is Kind.GANG and record is not None:
        return replace(found, uid=record.meta.uid)
    if referent.kind is Kind.CLAIM:
        uid = claim.meta.uid if claim is not None else referent.uid
        return replace(found, uid=uid, gang_uid=record.meta.uid if record is not None else referent.gang_uid)
    return found


def phase_of(group: Group, placement: Placement | None) -> Phase:
    """Return the phase of a gang, by its pods and its open ledger entries; of one that runs on, without late pods."""
    seats = placement.seats if placement is not None else {}
    seated = [pod for pod in group.pods if pod.meta.uid in seats or not pod.gated]
    if not group.pods:
        return Phase.FINISHED if group.ended else Phase.PENDING
    if not seated:
        return Phase.PENDING
    late = _late(group, placement)
    others = [pod for pod in seated if pod.meta.uid not in late]
    if any(pod.gated for pod in others):
        return Phase.RESERVED
    return Phase.RUNNING if all(pod.phase == "Running" for pod in others) else Phase.ADMITTED


def _late(group: Group, placement: Placement | None) -> Mapping[Uid, Pod]:
    """Return the pods with a place that join a gang which goes on without them, and do not run yet."""
    seats = placement.seats if placement is not None else {}
    waiting = [pod for pod in group.pods if pod.meta.uid in seats and pod.phase == "Pending"]
    running = sum(pod.phase == "Running" for pod in group.pods)
    return {
        pod.meta.uid: pod
        for pod in waiting
        if running
        and (names.joined_at(seats[pod.meta.uid].as_asked) is not None or (pod.gated and running >= group.still_needed))
    }


def _placement_hold(group: Group, placement: Placement | None, phase: Phase, inputs: StatusInputs) -> Hold | None:
    """Return why pods of a gang that have their places do not run, where that is known."""
    late = _late(group, placement)
    if phase is Phase.RESERVED or any(pod.gated for pod in late.values()):
        return inputs.placement_holds.get(group.uid)
    seats = placement.seats if placement is not None else {}
    unbound = [uid for uid, pod in late.items() if not pod.node]
    waiting = [uid for uid in unbound if placement_progress.awaits_node(seats[uid], inputs.snapshot.nodes)]
    asked = placement_progress.asked_for(seats[uid].as_asked for uid in waiting)
    if not asked:
        return inputs.placement_holds.get(group.uid) if unbound else None
    shapes = placement_progress.in_words(asked)
    pods = "a pod that joins it" if len(waiting) == 1 else f"{len(waiting)} pods that join it"
    message = f"it runs; nodes were asked for ({', '.join(shapes)}) for {pods}, and have not come yet"
    return Hold(HoldReason.NODES_NEEDED, message, {"nodes": sum(asked.values()), "shapes": shapes})


def charge_of(placement: Placement | None) -> Charge:
    """Return a gang's present charge, over all of its claims."""
    total: dict[MeterName, int] = {}
    for holding in placement.holdings.values() if placement is not None else ():
        for meter, amount in holding.charge.items():
            total[meter] = total.get(meter, 0) + amount
    return total


def conditions(
    snapshot: Snapshot,
    meters: Meters,
    *,
    health: MeterHealth = meter_health.NOTHING,
    policies: Policies = NO_POLICIES,
    templates: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    shapes: Iterable[ConditionReport] = (),
) -> list[ConditionReport]:
    """Return the conditions of every meter, claim policy and node shape.

    meters, policies: compiled. templates: by policy, which of its templates differ from what it wants. shapes: the
    conditions of NodeShapes that can be read.
    """
    counting = [
        _conditions("meters", name, meter.meta.generation, _ready(name, meter.classes, snapshot, meters, health))
        for name, meter in sorted(snapshot.meters.items())
    ]
    malformed = [
        ConditionReport(plural=plural, name=name, generation=0, conditions=(_malformed(error),), keeps=keeps)
        for plural, kind, keeps in (("meters", "Meter", frozenset[str]()), ("nodeshapes", "NodeShape", KEPT))
        for (of, name), error in sorted(snapshot.malformed.items())
        if of == kind
    ]
    return [*counting, *malformed, *shapes, *status.conditions(policies, snapshot, templates)]


def _malformed(error: MalformedObjectError) -> Condition:
    return condition("Ready", "Malformed", str(error), holds=False)


def _conditions(plural: str, name: str, generation: int, ready: Condition) -> ConditionReport:
    return ConditionReport(plural=plural, name=name, generation=generation, conditions=(ready,))


def condition(kind: str, reason: str, message: str, *, holds: bool) -> Condition:
    """Return a condition with status True or False."""
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    return Condition(type=kind, status=status, reason=reason, message=message)


def idle(
    record: Gang,
    backoffs: Mapping[GangUid, Backoff],
    evicted: Mapping[GangUid, Evicted] = MappingProxyType({}),
    answered: Mapping[GangUid, AnsweredRequest] = MappingProxyType({}),
) -> GangReport:
    """Return the status of a Gang object without pods: not created yet, being created again, or finished."""
    uid = GangUid(record.workload.uid if record.workload else record.meta.key)
    has_started = record.phase is not Phase.PENDING
    backoff, eviction = backoffs.get(uid), evicted.get(uid, record.evicted)
    is_recreated = (backoff is not None or eviction is not None) and record.phase is not Phase.FINISHED
    pods = "pod exists" if record.size == 1 else f"{record.size} pods exists"
    hold = Hold(HoldReason.GANG_INCOMPLETE, f"none of its {pods}", {"pods": 0, "size": record.size})
    return GangReport(
        uid=GangUid(record.meta.uid),
        namespace=record.meta.namespace,
        name=record.meta.name,
        queue=record.queue,
        size=record.size,
        priority=record.priority,
        workload=record.workload,
        phase=Phase.EVICTED if is_recreated else Phase.FINISHED if has_started else Phase.PENDING,
        hold=None if has_started else hold,
        evictions=backoff.evictions if backoff else record.evictions,
        evicted=eviction,
        answered=answered.get(uid, record.answered),
        queued_since=record.queued_since,
        next_try=backoff.next_try if backoff else record.next_try,
        refused=refusals.written(backoff.refusals) if backoff else record.refused,
    )


def is_superseded(record: Gang, others: Collection[Uid]) -> bool:
    """Return whether the pods of a Gang object have become other gangs of the same workload.

    They were one gang while the workload's size was unknown, such as while Muster was not allowed to read it; that gang
    has the name of the whole workload. others: the workloads of all gangs that have pods.
    """
    if record.written_by_user or record.workload is None or record.phase is not Phase.PENDING:
        return False
    if record.evictions or record.evicted is not None:
        # A gang that ran before: its present pods are still to be created.
        return False
    uid = record.workload.uid
    return uid in others and record.meta.name == gang_key.unique_name(record.workload.name, gang_key.gang_uid(uid))


def kept_until(record: Gang, report: GangReport, position_keys: Collection[str]) -> datetime | None:
    """Return how long the object of a gang without pods is kept; None for no limit.

    The object of a workload's gang is deleted with the workload, or when its controller has made another gang in its
    place: a workload that is restarted again and again would accumulate objects otherwise. An object that Muster made
    for pods that name their gang is deleted after these. But an evicted gang's object stays until the gang may be tried
    again, for whatever recreates its pods. position_keys: of all gangs that have pods.
    """
    if record.written_by_user or (record.workload is not None and record.position_key not in position_keys):
        return None
    if report.phase is not Phase.EVICTED:
        return report.next_try or EPOCH
    return report.next_try or ((report.evicted.at if report.evicted is not None else EPOCH) + PREEMPTED_RETENTION)


def _placed(group: Group, inputs: StatusInputs) -> ReportedPlacement:
    """Return the placement of a gang: from this leader, or from the status that its predecessor wrote."""
    chosen = inputs.chosen.get(group.uid)
    if chosen is not None:
        return ReportedPlacement(chosen.mode, chosen.reason, chosen.references)
    record = group.record
    if record is None:
        return PINNED
    # An older Muster has written names into it.
    reason = references.conceal(record.last_placement_reason, {group.identity.namespace})
    mode = record.last_placement or PlacementMode.PIN
    return ReportedPlacement(mode, reason, record.last_placement_references)


def _hold(decision: Decision | None) -> Hold | Denial | None:
    return None if decision is None or isinstance(decision.outcome, Grant) else decision.outcome


def _with_nodes(hold: Hold | Denial | None, needed: NodesNeeded | None) -> Hold | Denial | None:
    """Return the hold; of a gang that would start with more nodes, with these."""
    if needed is None or not isinstance(hold, Hold) or hold.reason not in node_needs.HELPED:
        return hold
    return node_needs.hold(needed, hold)


def _plan(placement: Placement | None) -> tuple[PlannedPod, ...]:
    if placement is None:
        return ()
    return tuple(
        PlannedPod(
            uid=seat.pod_uid,
            pod=seat.pod,
            node=names.for_people(seat.node),
            claims=tuple(
                PlannedClaim(uid=uid, claim=placement.holdings[uid].claim, devices=placement.holdings[uid].devices)
                for uid in seat.claims
                if uid in placement.holdings
            ),
        )
        for seat in sorted(placement.seats.values(), key=lambda seat: seat.pod)
    )


def _ready(
    name: MeterName, classes: Iterable[str], snapshot: Snapshot, meters: Meters, health: MeterHealth
) -> Condition:
    problems = meters.problems.get(name)
    if problems:
        return condition("Ready", "Malformed", f"meter {name}: {'; '.join(map(str, problems))}", holds=False)
    failure = health.failures.get(name)
    if failure is not None:
        return condition("Ready", "FailsOnDevices", failure.message, holds=False)
    missing = sorted(set(classes) - set(snapshot.classes))
    if missing:
        message = f"counts; no DeviceClass is called {', '.join(missing)} yet"
        return condition("Ready", "ClassMissing", message, holds=True)
    return condition("Ready", "Counting", "every source is understood", holds=True)


SHORTAGE_REASONS = frozenset({HoldReason.NO_FEASIBLE_PLACEMENT, HoldReason.DEVICES_BUSY, HoldReason.POOL_INCOMPLETE})
HARDWARE_KINDS = ("ResourceSlice", "Node", "DeviceClass", "NodeShape")


def with_malformed_hardware(hold: Hold | Denial | None, snapshot: Snapshot) -> Hold | Denial | None:
    """Return the hold; if devices are missing, with the first malformed hardware object, its field and the fix.

    Malformed objects take no part in decisions. Without this, a gang that waits would be reported as if no device
    existed.
    """
    if not isinstance(hold, Hold) or hold.reason not in SHORTAGE_REASONS or not snapshot.malformed:
        return hold
    malformed = sorted(key for key in snapshot.malformed if key[0] in HARDWARE_KINDS)
    if not malformed:
        return hold
    more = f" and {len(malformed) - 1} more" if len(malformed) > 1 else ""
    message = f"{hold.message}; not counted, since it cannot be read: {snapshot.malformed[malformed[0]]}{more}; mend it"
    return replace(hold, message=message)
