"""The kinds of devices of a queue, tried in order: on which of them a gang starts, or why on none.

The rules are those of Kueue's `flavorFungibility` (`pkg/scheduler/flavorassigner`, 2026), for a gang as a whole and
with a plan for its devices (`dra.planner.device_kinds`): a kind fits if there is a plan and the quota of all meters
suffices, with a loan or without. The first kind that fits without a loan is taken; `whenCanBorrow` says whether one
that fits with a loan is taken before that. With several that need one, that of the nearest lender is, and of these the
first. Whether a loan is needed is asked of the meters that count the kinds' classes; what else a pod takes is the same
on each kind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from admission.api.muster.gangs import Charge
from admission.api.muster.preferences import WhenCanBorrow
from admission.api.muster.queues import Queue
from admission.api.values.names import QueueName
from admission.api.values.reasons import Detail, Hold, HoldReason
from admission.dra.metering.device_meters import Meters
from admission.dra.planner.device_kinds import Attempt
from admission.quota.headroom import QueueUsage
from admission.scheduling.cache.verdict_cache import KINDS, PROOF, QUOTA, Verdict

OVER = frozenset({HoldReason.QUOTA_EXCEEDED, HoldReason.BUDGET_EXHAUSTED})
HOPELESS = frozenset({HoldReason.NO_FEASIBLE_PLACEMENT, HoldReason.NOT_SIMULATED, HoldReason.POOL_INCOMPLETE})
"""The reasons for which a gang will not start on a kind as the cluster is, whatever ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a gang is tried on: the kind of devices, empty without any, and whether its queue may borrow for it."""

    kind: str = ""
    may_borrow: bool = True


ANY = Terms()
"""Any kind, and with a loan."""

Plan = Callable[[Attempt, Terms], Verdict]
"""Returns the verdict on a gang on one kind."""


@dataclass(frozen=True, slots=True)
class WouldBorrow:
    """The shortfall of a queue that would have to borrow for a charge."""

    queue: QueueName

    @property
    def message(self) -> str:
        return f"queue {self.queue} would have to borrow for it"

    @property
    def details(self) -> Mapping[str, Detail]:
        return {"queue": self.queue}


def first(
    attempts: Sequence[Attempt],
    when: WhenCanBorrow,
    plan: Plan,
    level: Callable[[Charge], int],
    inventories: object = None,
) -> Verdict:
    """Return the grant on the kind that is taken, else the hold with the reason of each kind.

    level: how far up the queue borrows for a charge (`loan_level`). inventories: those that the attempts follow from.
    """
    if len(attempts) > 1 and when is WhenCanBorrow.TRY_NEXT:
        for attempt in attempts:
            found = plan(attempt, Terms(kind=attempt.name, may_borrow=False))
            if not isinstance(found.outcome, Hold):
                return _granted(attempt, found)
        tried = [(attempt, plan(attempt, Terms(kind=attempt.name))) for attempt in attempts]
        granted = [(attempt, found) for attempt, found in tried if not isinstance(found.outcome, Hold)]
        if granted:
            return _granted(*min(granted, key=lambda one: level(one[1].outcome.plan.charge)))
        return _held(tried, inventories)
    tried = []
    for attempt in attempts:
        found = plan(attempt, Terms(kind=attempt.name))
        if not isinstance(found.outcome, Hold):
            return _granted(attempt, found)
        tried.append((attempt, found))
    return _held(tried, inventories)


def loan_level(queue: Queue, charge: Charge, meters: Meters, queue_usage: QueueUsage) -> int:
    """Return how far up the queue would borrow for a charge, of the meters that count the kinds' classes."""
    classes = queue.preferences.classes if queue.preferences is not None else frozenset[str]()
    counted = {name: n for name, n in charge.items() if not classes.isdisjoint(meters.meters[name].classes)}
    return queue_usage.loan_level(queue.name, counted)


def _granted(attempt: Attempt, found: Verdict) -> Verdict:
    if not attempt.name:
        return found
    chosen = found.outcome.chosen
    reason = f"{chosen.reason}; devices of kind {attempt.name}"
    return replace(found, outcome=replace(found.outcome, kind=attempt.name, chosen=replace(chosen, reason=reason)))


def _rank(reason: HoldReason) -> tuple[bool, bool, bool]:
    return reason not in OVER, reason in HOPELESS, reason is HoldReason.NO_FEASIBLE_PLACEMENT


def _held(tried: Sequence[tuple[Attempt, Verdict]], inventories: object) -> Verdict:
    """Return the hold for the reasons of all kinds. Its own reason is that of the first that is over quota, if one is.

    Else it is that of the first kind that may fit in time. So it is `NoFeasiblePlacement` only if all have that.

    Without a loan no kind fits that does not fit with one, so the verdicts with loans alone have to stand.
    """
    first, found = min(tried, key=lambda one: _rank(one[1].outcome.reason))
    hold = found.outcome
    if first.name:
        named = [(attempt.name, one.outcome) for attempt, one in tried]
        details: dict[str, Detail] = {**hold.details, "kind": first.name, "kinds": [name for name, _ in named]}
        message = "; ".join(f"kind {name}: {one.message}" for name, one in named)
        # Phrases are found in the order of the references; the details are those of the first kind alone.
        references = tuple(
            reference if one is hold else replace(reference, detail="")
            for _, one in named
            for reference in one.references
        )
        hold = Hold(hold.reason, message, details, references)
    parts = tuple(one for _, one in tried)
    is_kept = all(one.by in {PROOF, QUOTA} for one in parts)
    return Verdict(group=found.group, outcome=hold, by=KINDS, parts=parts if is_kept else (), inventories=inventories)
