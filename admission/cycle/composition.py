"""The composition of a cycle's steps: each is given the parts of the leader's state that it uses."""

from dataclasses import dataclass

from admission.cycle.bulk_writes import BulkWriter
from admission.cycle.capacity_requests import RequestKeeper
from admission.cycle.look_ahead import LookAhead
from admission.cycle.node_needs import NodeNeedsCheck
from admission.cycle.scale_down import ScaleDown
from admission.cycle.seat_moves import SeatMoves
from admission.cycle.state.leader import Leader
from admission.cycle.state.result import CycleLog
from admission.cycle.steps.build_inputs import InputBuilder
from admission.cycle.steps.commit import GrantCommit
from admission.cycle.steps.deallocate import Deallocation
from admission.cycle.steps.evict import GangEviction
from admission.cycle.steps.ledger_sync import LedgerSync
from admission.cycle.steps.place import GangPlacement
from admission.cycle.steps.preempt import Preemption
from admission.cycle.steps.protection import ProtectionCheck
from admission.cycle.steps.queue_finalizers import QueueFinalizers
from admission.cycle.steps.report import CycleReport
from admission.cycle.steps.schedule import Scheduling
from admission.cycle.steps.suspend_resume import SuspendResume


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of one cycle."""

    inputs: InputBuilder
    protection: ProtectionCheck
    deallocation: Deallocation
    ledger_sync: LedgerSync
    suspend_resume: SuspendResume
    eviction: GangEviction
    finalizers: QueueFinalizers
    placement: GangPlacement
    requests: RequestKeeper
    scheduling: Scheduling
    commit: GrantCommit
    preemption: Preemption
    look_ahead: LookAhead
    node_needs: NodeNeedsCheck
    seat_moves: SeatMoves
    scale_down: ScaleDown
    report: CycleReport


def compose(leader: Leader, log: CycleLog) -> Steps:
    """Return the steps of a cycle that writes to this log."""
    ports, mirror, in_flight, evictions = leader.ports, leader.mirror, leader.in_flight, leader.evictions
    writer = BulkWriter(
        settings=leader.settings, pods=ports.pods, reports=ports.reports, traces=ports.traces, in_flight=in_flight
    )
    deallocation = Deallocation(
        claims=ports.claims,
        mirror=mirror,
        in_flight=in_flight,
        unreserved=leader.unreserved,
        claim_users=leader.claim_users,
        writer=writer,
    )
    eviction = GangEviction(
        pods=ports.pods,
        workloads=ports.workloads,
        reports=ports.reports,
        mirror=mirror,
        evictions=evictions,
        in_flight=in_flight,
        deallocation=deallocation,
        writer=writer,
        shapes=leader.shapes,
        log=log,
    )
    preemption = _preemption(leader, eviction)
    protection, suspend_resume = _protection(leader), _suspend_resume(leader, writer, log)
    placement = _placement(leader, eviction, log, protection=protection, suspend_resume=suspend_resume)
    scheduling, commit = _scheduling(leader, preemption, log), _commit(leader, placement, log)
    return Steps(
        inputs=_inputs(leader),
        protection=protection,
        deallocation=deallocation,
        ledger_sync=LedgerSync(
            term=leader.term,
            mirror=mirror,
            dirty=leader.dirty,
            claim_users=leader.claim_users,
            evictions=evictions,
            deallocation=deallocation,
            log=log,
        ),
        suspend_resume=suspend_resume,
        eviction=eviction,
        finalizers=_finalizers(leader, writer),
        placement=placement,
        requests=placement.requests,
        scheduling=scheduling,
        commit=commit,
        preemption=preemption,
        look_ahead=_look_ahead(leader, log),
        node_needs=_node_needs(leader, scheduling, commit),
        seat_moves=_seat_moves(leader, scheduling),
        scale_down=_scale_down(leader, writer),
        report=_report(leader, log),
    )


def _preemption(leader: Leader, eviction: GangEviction) -> Preemption:
    return Preemption(
        term=leader.term,
        mirror=leader.mirror,
        evictions=leader.evictions,
        in_flight=leader.in_flight,
        gangs=leader.gangs,
        nominations=leader.nominations,
        searches=leader.searches,
        backfill=leader.backfill,
        cache=leader.scheduling,
        statuses=leader.statuses,
        eviction=eviction,
    )


def _scale_down(leader: Leader, writer: BulkWriter) -> ScaleDown:
    return ScaleDown(nodes=leader.ports.nodes, nominations=leader.nominations, writer=writer, state=leader.scale_down)


def _finalizers(leader: Leader, writer: BulkWriter) -> QueueFinalizers:
    ports = leader.ports
    return QueueFinalizers(
        port=ports.queues, reports=ports.reports, mirror=leader.mirror, queues=leader.queues, writer=writer
    )


def _inputs(leader: Leader) -> InputBuilder:
    return InputBuilder(
        scheduler=leader.ports.scheduler,
        mirror=leader.mirror,
        queues=leader.queues,
        pending=leader.process.pending,
        in_flight=leader.in_flight,
        gangs=leader.gangs,
        cache=leader.scheduling,
    )


def _protection(leader: Leader) -> ProtectionCheck:
    return ProtectionCheck(
        view=leader.ports.view,
        barriers=leader.ports.fences,
        scheduler=leader.ports.scheduler,
        term=leader.term,
        mirror=leader.mirror,
        fences=leader.fences,
        in_flight=leader.in_flight,
    )


def _suspend_resume(leader: Leader, writer: BulkWriter, log: CycleLog) -> SuspendResume:
    return SuspendResume(
        workloads=leader.ports.workloads,
        reports=leader.ports.reports,
        mirror=leader.mirror,
        in_flight=leader.in_flight,
        pending=leader.process.pending,
        writer=writer,
        log=log,
    )


def _placement(
    leader: Leader, eviction: GangEviction, log: CycleLog, *, protection: ProtectionCheck, suspend_resume: SuspendResume
) -> GangPlacement:
    return GangPlacement(
        claims=leader.ports.claims,
        traces=leader.ports.traces,
        settings=leader.settings,
        executor=leader.process.executor,
        mirror=leader.mirror,
        fences=leader.fences,
        evictions=leader.evictions,
        in_flight=leader.in_flight,
        cache=leader.scheduling,
        protection=protection,
        suspend_resume=suspend_resume,
        eviction=eviction,
        requests=RequestKeeper(
            requests=leader.ports.requests,
            mirror=leader.mirror,
            writer=eviction.writer,
            state=leader.requests,
            in_flight=leader.in_flight,
        ),
        writer=eviction.writer,
        log=log,
    )


def _scheduling(leader: Leader, preemption: Preemption, log: CycleLog) -> Scheduling:
    return Scheduling(
        settings=leader.settings,
        mirror=leader.mirror,
        fences=leader.fences,
        evictions=leader.evictions,
        pending=leader.process.pending,
        expected_ends=leader.expected_ends,
        arrivals=leader.arrivals,
        backfill=leader.backfill,
        nominations=leader.nominations,
        cache=leader.scheduling,
        statuses=leader.statuses,
        preemption=preemption,
        log=log,
    )


def _commit(leader: Leader, placement: GangPlacement, log: CycleLog) -> GrantCommit:
    return GrantCommit(
        reports=leader.ports.reports,
        traces=leader.ports.traces,
        mirror=leader.mirror,
        fences=leader.fences,
        evictions=leader.evictions,
        placement=placement,
        log=log,
    )


def _look_ahead(leader: Leader, log: CycleLog) -> LookAhead:
    return LookAhead(
        settings=leader.settings,
        mirror=leader.mirror,
        fences=leader.fences,
        cache=leader.scheduling,
        reviews=leader.policies,
        waves=leader.later_waves,
        log=log,
    )


def _node_needs(leader: Leader, scheduling: Scheduling, commit: GrantCommit) -> NodeNeedsCheck:
    return NodeNeedsCheck(
        settings=leader.settings,
        mirror=leader.mirror,
        fences=leader.fences,
        nominations=leader.nominations,
        cache=leader.scheduling,
        scheduling=scheduling,
        statuses=leader.statuses,
        commit=commit,
        expected_nodes=leader.expected_nodes,
        state=leader.node_needs,
        shapes=leader.shapes,
    )


def _seat_moves(leader: Leader, scheduling: Scheduling) -> SeatMoves:
    return SeatMoves(
        settings=leader.settings,
        executor=leader.process.executor,
        mirror=leader.mirror,
        fences=leader.fences,
        nominations=leader.nominations,
        cache=leader.scheduling,
        scheduling=scheduling,
        expected_nodes=leader.expected_nodes,
        turns=leader.seat_turns,
    )


def _report(leader: Leader, log: CycleLog) -> CycleReport:
    return CycleReport(
        reports=leader.ports.reports,
        templates=leader.ports.templates,
        settings=leader.settings,
        executor=leader.process.executor,
        term=leader.term,
        mirror=leader.mirror,
        fences=leader.fences,
        queues=leader.queues,
        evictions=leader.evictions,
        in_flight=leader.in_flight,
        backfill=leader.backfill,
        searches=leader.searches,
        policies=leader.policies,
        cache=leader.scheduling,
        statuses=leader.statuses,
        outcomes=leader.outcomes,
        outside=leader.outside,
        allocations=leader.allocations,
        idle=leader.idle,
        memory=leader.memory,
        later_waves=leader.later_waves,
        node_needs=leader.node_needs,
        seat_turns=leader.seat_turns,
        shapes=leader.shapes,
        log=log,
    )
