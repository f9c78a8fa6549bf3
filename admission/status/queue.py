"""The status of every queue: usage against quota, budgets, pending amounts, and problems of its quota.

All queues share one usage calculation. A problem is a condition whose message has the remedy: `Active`, and for queues
with quotas or budgets `QuotaWithin`, `MetersKnown` and `BudgetLeft`; `DevicesProtected` if Muster allocates devices;
`KubernetesKnown`, `ProvisioningRequestsServed` and `UseRecorded` only while they are False.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from admission.accounting.books import Use
from admission.api.kubernetes.meta import Condition, ConditionStatus
from admission.api.muster.gangs import Charge, GangReport, Phase
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import OnExhausted, Queue
from admission.api.muster.status_reports import BudgetUse, MeterUse, QueueReport, QueueSummary
from admission.api.values import names, quantities, references
from admission.api.values.names import MeterName, QueueName
from admission.api.values.reasons import HoldReason
from admission.api.values.references import Kind, References, Referent
from admission.dra import compatibility
from admission.dra.compatibility import SchedulerProfile
from admission.lifecycle import deleted_queues
from admission.quota import budgets as budgets_
from admission.quota.headroom import QueueUsage
from admission.quota.tree import Inactive
from admission.scheduling.capacity import capacity_requests
from admission.scheduling.checks import queue_rules
from admission.scheduling.placement import protection_conditions
from admission.status import gang, queue_sums
from admission.status.gang import StatusInputs
from admission.status.queue_sums import SubtreeSums

K = TypeVar("K")

ACTIVE = "Active"

REQUESTS_SERVED = "ProvisioningRequestsServed"

STOPPED = "Stopped"
"""The reason of `Active` while the queue, or one above it, has a stopPolicy, as in Kueue (ClusterQueue)."""

_CONTENDED = (HoldReason.QUOTA_EXCEEDED, HoldReason.DEVICES_BUSY)
"""The reasons of gangs that wait for what others have."""


@dataclass(slots=True)
class Tally:
    """The sums of queues' statuses: gangs by phase, and the least that waiting gangs need.

    contended: by queue, how many gangs wait for quota or devices, by the least that each needs. idle: by queue, gangs
    whose devices are idle. over_memory: those of whose devices more memory is in use than was asked for. touched: the
    queues whose sums may have changed since somebody has cleared it.
    """

    phases: dict[QueueName, Counter[Phase]] = field(default_factory=dict)
    pending: dict[QueueName, Counter[MeterName]] = field(default_factory=dict)
    contended: dict[QueueName, Counter[frozenset[tuple[MeterName, int]]]] = field(default_factory=dict)
    idle: Counter[QueueName] = field(default_factory=Counter)
    over_memory: Counter[QueueName] = field(default_factory=Counter)
    touched: set[QueueName] = field(default_factory=set)

    def add(self, report: GangReport, needed: Charge, times: int = 1) -> None:
        """Count a gang. times: -1 to subtract it."""
        self.touched.add(report.queue)
        _count(self.phases.setdefault(report.queue, Counter()), {report.phase: 1}, times)
        _count(self.pending.setdefault(report.queue, Counter()), needed, times)
        if report.idle is not None:
            _count(self.idle, {report.queue: 1}, times)
        if report.memory is not None:
            _count(self.over_memory, {report.queue: 1}, times)
        reason = report.hold.details.get("instead", report.hold.reason) if report.hold is not None else None
        if needed and reason in _CONTENDED:
            _count(self.contended.setdefault(report.queue, Counter()), {frozenset(needed.items()): 1}, times)


def _count(counter: Counter[K], amounts: Mapping[K, int], times: int) -> None:
    """Add to a counter, which keeps no zeros."""
    for name, amount in amounts.items():
        counter[name] += times * amount
        if not counter[name]:
            del counter[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SharedInputs:
    """The shared inputs of all queues' statuses."""

    inputs: StatusInputs
    uses: Mapping[QueueName, Mapping[MeterName, Use]]
    tally: Tally
    queue_usage: QueueUsage
    meters: Sequence[MeterName]
    """Those that any queue has a quota or use of, sorted."""
    open_gangs: Mapping[QueueName, Sequence[Placement]]
    """By queue, the gangs that delay its deletion."""


@dataclass(slots=True)
class QueueStatusCache:
    """The statuses of all queues as last made. One per leader.

    A status is made from the sums of its queue's gangs and from what all queues share. While that is the same, only the
    queues of gangs whose status changed are made again, and those that refer to gangs, whose UIDs may come to be known.

    Rule: only `refresh` changes it, and clears `touched` of its tally.
    """

    _basis: tuple[object, ...] = ()
    _shared: _SharedInputs | None = None
    _reports: dict[QueueName, QueueReport] = field(default_factory=dict)
    _sums: Mapping[QueueName, SubtreeSums] = field(default_factory=dict)
    """Of each queue and all below it."""

    def refresh(self, tally: Tally, inputs: StatusInputs) -> list[QueueReport]:
        """Return the status of every queue."""
        snapshot = inputs.snapshot
        basis = (
            *(snapshot.queues, snapshot.meters, snapshot.malformed, inputs.tree, inputs.book),
            *(inputs.budgets, inputs.protections, inputs.refused, inputs.scheduler),
        )
        if self._shared is None or basis != self._basis:
            shared = _shared_inputs(tally, inputs)
            made = _make(snapshot.queues, shared)
        else:
            shared = replace(self._shared, tally=tally, inputs=inputs)
            stale = {*tally.touched, *(name for name, report in self._reports.items() if report.references)}
            made = self._reports | _make(stale & snapshot.queues.keys(), shared)
        above = _with_those_above(
            (name for name, report in made.items() if self._reports.get(name) is not report), made, snapshot.queues
        )
        self._sums = queue_sums.sums(
            made, snapshot.queues, {name: one for name, one in self._sums.items() if name not in above}
        )
        reports = made | {name: replace(made[name], summary=_summary(self._sums[name])) for name in above}
        self._shared, self._basis, self._reports = shared, basis, reports
        tally.touched.clear()
        return [*reports.values()]


def queues(tally: Tally, inputs: StatusInputs) -> list[QueueReport]:
    """Return the status of every queue."""
    return QueueStatusCache().refresh(tally, inputs)


def _shared_inputs(tally: Tally, inputs: StatusInputs) -> _SharedInputs:
    uses = inputs.book.usage()
    totals = {name: {meter: sum(use) for meter, use in meters.items()} for name, meters in uses.items()}
    deleted = any(queue.meta.deleted is not None for queue in inputs.snapshot.queues.values())
    return _SharedInputs(
        inputs=inputs,
        uses=uses,
        tally=tally,
        queue_usage=QueueUsage(inputs.tree, totals),
        meters=sorted(
            {quota.meter for queue in inputs.snapshot.queues.values() for quota in queue.quotas}
            | {meter for use in uses.values() for meter in use}
        ),
        open_gangs=deleted_queues.users(inputs.tree.queues, inputs.book.placements.values()) if deleted else {},
    )


def _make(queues_: Iterable[QueueName], shared: _SharedInputs) -> dict[QueueName, QueueReport]:
    """Return the statuses of queues without their sums, by name in order."""
    inputs = shared.inputs
    return {
        name: QueueReport(
            name=name,
            generation=queue.meta.generation,
            conditions=tuple(_conditions(queue, shared)),
            references=(
                *map(inputs.identify, _deletion_references(queue, shared)),
                *map(inputs.identify, protection_conditions.references(queue, inputs.protections)),
            ),
            meters=_uses(queue, shared),
            budgets=inputs.budgets.get(name, ()),
            gangs=dict(shared.tally.phases.get(name, {})),
            starved=_starved(queue, shared),
            idle=shared.tally.idle[name],
            over_memory=shared.tally.over_memory[name],
            max_wait=queue.max_wait,
        )
        for name, queue in sorted((name, inputs.snapshot.queues[name]) for name in queues_)
    }


def _with_those_above(
    changed: Iterable[QueueName], reports: Collection[QueueName], queues: Mapping[QueueName, Queue]
) -> set[QueueName]:
    """Return queues with all above them that have a report."""
    found = set[QueueName]()
    for name in changed:
        at: QueueName | None = name
        while at is not None and at in reports and at not in found:  # parents may form a circle
            found.add(at)
            at = queues[at].parent
    return found


def malformed(name: str, message: str) -> QueueReport:
    """Return the status of a malformed Queue."""
    active = gang.condition(ACTIVE, "Malformed", message, holds=False)
    return QueueReport(name=QueueName(name), conditions=(active,))


def _summary(sums: SubtreeSums) -> QueueSummary:
    """Return what `kubectl get` shows of a queue and those below it."""
    busiest = MeterName(sums.busiest)
    use = sums.uses.get(busiest, MeterUse())
    return QueueSummary(
        meter=busiest,
        used=use.reserved + use.used,
        quota=use.nominal,
        borrowed=use.borrowed,
        waiting=sums.waiting,
        started=sums.started,
    )


def _uses(queue: Queue, shared: _SharedInputs) -> dict[MeterName, MeterUse]:
    quotas = {quota.meter: quota.nominal for quota in queue.quotas}
    usage: Mapping[MeterName, Use] = shared.uses.get(queue.name, {})
    pending: Mapping[MeterName, int] = shared.tally.pending.get(queue.name, {})
    counted = shared.queue_usage
    own = {*quotas, *usage, *pending}
    # Of a queue without a quota of its own, what those below it borrow through it, or lend.
    passed = (
        meter
        for meter in shared.meters
        if meter not in own and (counted.borrowed(queue.name, meter) or counted.lent(queue.name, meter))
    )
    found: dict[MeterName, MeterUse] = {}
    for meter in sorted({*own, *passed}):
        reserved, used = usage.get(meter, (0, 0))
        found[meter] = MeterUse(
            nominal=quotas.get(meter, 0),
            reserved=reserved,
            used=used,
            borrowed=counted.borrowed(queue.name, meter),
            lent=counted.lent(queue.name, meter),
            pending=pending.get(meter, 0),
        )
    return found


def _starved(queue: Queue, shared: _SharedInputs) -> int:
    """Return how many gangs wait for quota or devices, and need no more than is left of the queue's own quota."""
    contended = shared.tally.contended.get(queue.name)
    if not contended:
        return 0
    usage = shared.uses.get(queue.name, {})
    left = {quota.meter: quota.nominal - sum(usage.get(quota.meter, Use(0, 0))) for quota in queue.quotas}
    return sum(
        gangs for needed, gangs in contended.items() if all(amount <= left.get(meter, 0) for meter, amount in needed)
    )


def _conditions(queue: Queue, shared: _SharedInputs) -> Iterator[Condition]:
    problem = shared.inputs.tree.problems.get(queue.name)
    stopped = queue_rules.stopped(queue.name, shared.inputs.tree) if problem is None else None
    if queue.meta.deleted is not None:
        yield gang.condition(ACTIVE, Inactive.TERMINATING, _deletion_message(queue, shared), holds=False)
    elif problem is not None:
        yield gang.condition(ACTIVE, problem.reason, problem.message, holds=False)
    elif stopped is not None:
        yield gang.condition(ACTIVE, STOPPED, stopped.message, holds=False)
    else:
        yield gang.condition(ACTIVE, "Ready", "the queue admits gangs", holds=True)
    if queue.quotas:
        yield _quota_within(queue, shared)
    if queue.quotas or queue.budgets:
        yield _meters_known(queue, shared)
    if queue.budgets:
        yield _budget_left(queue, shared.inputs.budgets.get(queue.name))
    protected = protection_conditions.condition(queue, shared.inputs.protections)
    if protected is not None:
        yield protected
    if capacity_requests.asks_by_request(queue) and (why := capacity_requests.unserved(shared.inputs.snapshot)):
        yield gang.condition(REQUESTS_SERVED, "NotServed", f"no nodes are asked for: {why}", holds=False)
    yield from _use_recorded(queue, shared.inputs)
    if queue.namespaces is not None:
        yield from _kubernetes_known(shared.inputs.scheduler)


def _use_recorded(queue: Queue, inputs: StatusInputs) -> Iterator[Condition]:
    """Yield a condition where a queue says when gangs are idle, and nobody records it."""
    if queue.idle is None or inputs.records_use:
        return
    message = (
        "spec.idle has no effect, since nothing is recorded of what devices do: set usage.prometheus.url, or remove"
        " spec.idle"
    )
    yield gang.condition("UseRecorded", "NotRecorded", message, holds=False)


def _kubernetes_known(scheduler: SchedulerProfile | None) -> Iterator[Condition]:
    """Yield a condition where the cluster's release is newer or older than every one that plans can follow."""
    if scheduler is None:
        oldest = compatibility.BY_VERSION[0]
        message = (
            f"Kubernetes is older than {oldest}, the oldest whose kube-scheduler this Muster knows: gangs that need"
            " devices wait; upgrade Kubernetes, or set controller.profile"
        )
        yield gang.condition("KubernetesKnown", "TooOld", message, holds=False)
    elif scheduler.mismatch:
        message = (
            f"{scheduler.mismatch}: gangs are planned as on {scheduler.release} and pinned to nodes, and Muster gives"
            " no devices itself; upgrade Muster, or set controller.profile to vouch that the two are alike"
        )
        yield gang.condition("KubernetesKnown", "TooNew", message, holds=False)


def _deletion_message(queue: Queue, shared: _SharedInputs) -> str:
    """Return what delays the deletion of a queue."""
    prefix = "the queue is being deleted and takes no new gangs"
    for gangs in _deletion_references(queue, shared):
        return f"{prefix}; it goes when all that was let in here or below it has given its devices back: {gangs.phrase}"
    refusal = shared.inputs.refused.get(queue.name)
    if refusal is not None:
        return f"{prefix}; nothing runs in it any more, but {refusal}"
    others = [name for name in queue.meta.finalizers if name != names.IN_USE]
    if others:
        return f"{prefix}; nothing runs in it any more, but others keep it by the finalizers {', '.join(others)}"
    return f"{prefix}; nothing runs in it any more"


def _deletion_references(queue: Queue, shared: _SharedInputs) -> References:
    """Return a reference to the gangs that delay the deletion of a queue, if there are any."""
    gangs = shared.open_gangs.get(queue.name, ()) if queue.meta.deleted is not None else ()
    found = sorted((Referent(kind=Kind.GANG, key=one.gang, queue=one.queue) for one in gangs), key=lambda one: one.key)
    return (references.refer(found, detail=ACTIVE),) if found else ()


def _quota_within(queue: Queue, shared: _SharedInputs) -> Condition:
    """Return whether more is used under the queue than it may have, as after a quota was lowered."""
    exceeding = [quota.meter for quota in queue.quotas if _exceeds_potential(queue.name, quota.meter, shared)]
    if not exceeding:
        return gang.condition("QuotaWithin", "Within", "no more is used than the quotas allow", holds=True)
    meter = min(exceeding)
    used, potential = shared.queue_usage.usage(queue.name, meter), shared.queue_usage.potential(queue.name, meter)
    message = (
        f"{quantities.render(used)} {meter} are used, more than the {quantities.render(potential)} that the queue"
        " can have; nothing is evicted for it, and nothing that needs more starts until enough has ended or the"
        " quota is raised"
    )
    return gang.condition("QuotaWithin", "OverNominal", message, holds=False)


def _exceeds_potential(name: QueueName, meter: MeterName, shared: _SharedInputs) -> bool:
    return shared.queue_usage.usage(name, meter) > shared.queue_usage.potential(
        name, meter
    ) and shared.inputs.tree.active(name)


def _meters_known(queue: Queue, shared: _SharedInputs) -> Condition:
    named = {quota.meter: "quotas" for quota in queue.quotas} | {budget.meter: "budgets" for budget in queue.budgets}
    missing = sorted(meter for meter in named if meter not in shared.inputs.snapshot.meters)
    if not missing:
        return gang.condition("MetersKnown", "Known", "every meter that the queue names exists", holds=True)
    meter = missing[0]
    charged = sum(shared.uses.get(queue.name, {}).get(meter, Use(0, 0)))
    suffix = (
        f"; the {quantities.render(charged)} that are charged stay so until their claims are gone" if charged else ""
    )
    malformed = shared.inputs.snapshot.malformed.get(("Meter", meter))
    why = f"Meter {meter} cannot be read ({malformed})" if malformed else f"there is no Meter {', '.join(missing)}"
    message = f"{why}: create it, or take it from spec.{named[meter]}; no gang starts here before{suffix}"
    return gang.condition("MetersKnown", "MeterMissing", message, holds=False)


def _budget_left(queue: Queue, budgets: Iterable[BudgetUse] | None) -> Condition:
    """Return whether every budget of the queue has something left. budgets: None if unknown."""
    if budgets is None:
        message = "the ledger's database has not said yet what is spent; nothing starts before it answers"
        return Condition(type="BudgetLeft", status=ConditionStatus.UNKNOWN, reason="LedgerUnavailable", message=message)
    spent = [budget for budget in budgets if budget.start is not None and budget.left <= 0]
    if not spent:
        return gang.condition("BudgetLeft", "Left", "something is left of every budget", holds=True)
    # A budget that holds gangs is more important than one that only warns.
    budget = min(spent, key=lambda budget: (budget.on_exhausted != OnExhausted.HOLD, budget.meter))
    consequence = (
        "gangs are admitted nevertheless" if budget.on_exhausted == OnExhausted.WARN else "nothing that needs it starts"
    )
    end = budget.end.isoformat().replace("+00:00", "Z") if budget.end else ""
    message = (
        f"the {budgets_.hours(budget.limit)} {budget.meter}-hours of queue {queue.name} until {end} are spent or"
        f" promised to gangs that run; {consequence}; wait for the end of the period, or raise spec.budgets"
    )
    return gang.condition("BudgetLeft", "BudgetExhausted", message, holds=False)
