"""What people are told: the status of every gang, queue and meter, from one snapshot and what was decided on it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from admission.api.entries import Placement
from admission.api.gangs import Charge, Gang, GangReport, Phase, PlannedClaim, PlannedPod
from admission.api.meta import Condition, ConditionStatus
from admission.api.names import GangUid, MeterName, QueueName
from admission.api.queues import Queue
from admission.api.reasons import Denial, Hold, HoldReason
from admission.api.reports import ConditionReport, MeterUse, QueueReport
from admission.api.snapshot import Snapshot
from admission.dra import appraising
from admission.dra.appraising import Appraisal
from admission.dra.metering import Meters
from admission.policy.deciding import Backoff, Decision, Grant
from admission.policy.recognition import Group
from admission.quota.available import Loans
from admission.quota.books import Book, Use
from admission.quota.tree import Tree

PIN = "Pin"
"""The placement of this release: kube-scheduler picks the devices on the node that Muster chose."""


NOT_APPLIED = Condition(
    type="Ready",
    status=ConditionStatus.FALSE,
    reason="NotApplied",
    message="this release does not apply claim policies; claims stay as their authors wrote them",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the reports are made of, after a cycle."""

    snapshot: Snapshot
    book: Book
    tree: Tree
    meters: Meters
    appraisal: Appraisal = appraising.NOTHING
    decisions: Mapping[GangUid, Decision] = field(default_factory=dict)
    backoffs: Mapping[GangUid, Backoff] = field(default_factory=dict)


def gang(group: Group, facts: Facts) -> GangReport:
    """Return the status of one gang."""
    decision = facts.decisions.get(group.uid)
    placement = facts.book.placements.get(group.uid)
    backoff = facts.backoffs.get(group.uid)
    phase = phase_of(group, placement)
    waits = decision is not None and not isinstance(decision.outcome, Grant)
    return GangReport(
        uid=group.uid,
        namespace=group.identity.namespace,
        name=group.identity.name,
        queue=group.queue,
        size=group.identity.size or max(1, len(group.pods)),
        priority=group.priority,
        workload=group.identity.workload,
        phase=phase,
        pods=len(group.pods),
        hold=_hold(decision),
        position=decision.position if waits and decision is not None else None,
        plan=_plan(placement),
        charges=charge_of(placement),
        placement=PIN if placement is not None else "",
        evictions=backoff.evictions if backoff else 0,
        queued_since=group.queued_since,
        next_try=backoff.next_try if backoff else None,
    )


def phase_of(group: Group, placement: Placement | None) -> Phase:
    """Return where the gang stands, by its pods and what the ledger has open for it."""
    seats = placement.seats if placement is not None else {}
    seated = [pod for pod in group.pods if pod.meta.uid in seats or not pod.gated]
    if not group.pods:
        return Phase.FINISHED if group.ended else Phase.PENDING
    if not seated:
        return Phase.PENDING
    if any(pod.gated for pod in seated):
        return Phase.RESERVED
    return Phase.RUNNING if all(pod.phase == "Running" for pod in seated) else Phase.ADMITTED


def charge_of(placement: Placement | None) -> Charge:
    """Return what a gang is charged now, over all of its claims."""
    total: dict[MeterName, int] = {}
    for holding in placement.holdings.values() if placement is not None else ():
        for meter, amount in holding.charge.items():
            total[meter] = total.get(meter, 0) + amount
    return total


def queues(groups: Iterable[Group], reports: Iterable[GangReport], facts: Facts) -> list[QueueReport]:
    """Return the status of every queue."""
    phases: dict[QueueName, Counter[Phase]] = {}
    for report in reports:
        phases.setdefault(report.queue, Counter())[report.phase] += 1
    pending = _pending(groups, facts)
    usage = facts.book.usage()
    loans = _loans(facts, usage, pending)
    return [
        QueueReport(
            name=name,
            generation=queue.meta.generation,
            conditions=(_active(queue, facts.tree),),
            meters=_uses(queue, pending.get(name, {}), usage.get(name, {}), loans),
            gangs=dict(phases.get(name, {})),
        )
        for name, queue in sorted(facts.snapshot.queues.items())
    ]


def conditions(facts: Facts) -> list[ConditionReport]:
    """Return the conditions of every meter and claim policy."""
    meters = [
        ConditionReport(
            plural="meters",
            name=name,
            generation=meter.meta.generation,
            conditions=(_ready(name, meter.classes, facts),),
        )
        for name, meter in sorted(facts.snapshot.meters.items())
    ]
    meters += [
        ConditionReport(
            plural="meters",
            name=name,
            generation=0,
            conditions=(_condition("Ready", "Malformed", str(error), holds=False),),
        )
        for (kind, name), error in sorted(facts.snapshot.malformed.items())
        if kind == "Meter"
    ]
    policies = [
        ConditionReport(plural="claimpolicies", name=name, generation=meta.generation, conditions=(NOT_APPLIED,))
        for name, meta in sorted(facts.snapshot.policies.items())
    ]
    return [*meters, *policies]


def idle(record: Gang, backoffs: Mapping[GangUid, Backoff]) -> GangReport:
    """Return the status of a Gang object none of whose pods exists: not there yet, being made again, or over."""
    begun = record.phase is not Phase.PENDING
    backoff = backoffs.get(GangUid(record.workload.uid if record.workload else record.meta.key))
    made_again = backoff is not None and record.phase is not Phase.FINISHED
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
        phase=Phase.EVICTED if made_again else Phase.FINISHED if begun else Phase.PENDING,
        hold=None if begun else hold,
        evictions=backoff.evictions if backoff else record.evictions,
        queued_since=record.queued_since,
        next_try=backoff.next_try if backoff else record.next_try,
    )


def malformed_queue(name: str, message: str) -> QueueReport:
    """Return the status of a Queue that cannot be read."""
    return QueueReport(name=QueueName(name), conditions=(_condition("Active", "Malformed", message, holds=False),))


def _hold(decision: Decision | None) -> Hold | Denial | None:
    return None if decision is None or isinstance(decision.outcome, Grant) else decision.outcome


def _plan(placement: Placement | None) -> tuple[PlannedPod, ...]:
    if placement is None:
        return ()
    return tuple(
        PlannedPod(
            uid=seat.pod_uid,
            pod=seat.pod,
            node=seat.node,
            claims=tuple(
                PlannedClaim(uid=uid, claim=placement.holdings[uid].claim, devices=placement.holdings[uid].devices)
                for uid in seat.claims
                if uid in placement.holdings
            ),
        )
        for seat in sorted(placement.seats.values(), key=lambda seat: seat.pod)
    )


def _pending(groups: Iterable[Group], facts: Facts) -> dict[QueueName, dict[MeterName, int]]:
    pending: dict[QueueName, dict[MeterName, int]] = {}
    for group in groups:
        decision = facts.decisions.get(group.uid)
        if decision is None or isinstance(decision.outcome, Grant):
            continue
        amounts = pending.setdefault(group.queue, {})
        for meter, amount in decision.needed.items():
            amounts[meter] = amounts.get(meter, 0) + amount
    return pending


def _loans(
    facts: Facts,
    usage: Mapping[QueueName, Mapping[MeterName, Use]],
    pending: Mapping[QueueName, Mapping[MeterName, int]],
) -> dict[MeterName, Loans]:
    """Return the loans of every meter that some queue has, uses or waits for."""
    totals = {name: {meter: sum(use) for meter, use in meters.items()} for name, meters in usage.items()}
    quotas = (quota.meter for queue in facts.snapshot.queues.values() for quota in queue.quotas)
    meters = {*quotas, *(meter for part in (*usage.values(), *pending.values()) for meter in part)}
    return {meter: Loans(facts.tree, totals, meter) for meter in meters}


def _uses(
    queue: Queue, pending: Mapping[MeterName, int], own: Mapping[MeterName, Use], loans: Mapping[MeterName, Loans]
) -> dict[MeterName, MeterUse]:
    quotas = {quota.meter: quota.nominal for quota in queue.quotas}
    found: dict[MeterName, MeterUse] = {}
    for meter in sorted({*quotas, *own, *pending}):
        reserved, used = own.get(meter, (0, 0))
        found[meter] = MeterUse(
            nominal=quotas.get(meter, 0),
            reserved=reserved,
            used=used,
            borrowed=loans[meter].borrowed(queue.name),
            lent=loans[meter].lent(queue.name),
            pending=pending.get(meter, 0),
        )
    return found


def _active(queue: Queue, tree: Tree) -> Condition:
    flaw = tree.flaws.get(queue.name)
    if flaw is not None:
        return _condition("Active", flaw.reason, flaw.message, holds=False)
    return _condition("Active", "Ready", "the queue admits gangs", holds=True)


def _ready(name: MeterName, classes: Iterable[str], facts: Facts) -> Condition:
    flaws = facts.meters.flaws.get(name)
    if flaws:
        return _condition("Ready", "Malformed", f"meter {name}: {'; '.join(map(str, flaws))}", holds=False)
    failure = facts.appraisal.failures.get(name)
    if failure is not None:
        return _condition("Ready", "FailsOnDevices", failure.message, holds=False)
    missing = sorted(set(classes) - set(facts.snapshot.classes))
    if missing:
        message = f"counts; no DeviceClass is called {', '.join(missing)} yet"
        return _condition("Ready", "ClassMissing", message, holds=True)
    return _condition("Ready", "Counting", "every source is understood", holds=True)


def _condition(kind: str, reason: str, message: str, *, holds: bool) -> Condition:
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    return Condition(type=kind, status=status, reason=reason, message=message)
