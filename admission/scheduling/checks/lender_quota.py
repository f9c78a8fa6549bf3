"""Whether a queue keeps its own quota for a gang of it that waits, instead of lending it, and how much.

As in Kueue, which reserves up to the nominal quota for a head that no preemption helps (`pkg/scheduler/scheduler.go`,
`reserveCapacityForUnreclaimablePreempt`, 2026): else others borrow again and again what is not enough for it alone, and
a gang that would fit its queue's own quota never starts.

What is kept is what the gang is short of by a lower bound on its charge. If that fits, and only a plan is charged too
much, it is what a plan would be charged for which the queue's own quota would do if others used nothing of it.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from admission.api.muster.gangs import Charge
from admission.api.muster.queues import Lending, Queue, Reclaim
from admission.api.values.reasons import Hold, HoldReason
from admission.dra.requests.gang_request import Shortfall
from admission.quota.headroom import QueueUsage
from admission.scheduling.cache.verdict_cache import QUOTA, Verdict
from admission.scheduling.checks import chain, elastic, preference
from admission.scheduling.checks.chain import Grant, Inputs
from admission.workloads.gangs import Group


def may_keep(queue: Queue, needed: Charge) -> bool:
    """Return whether the queue keeps quota for gangs that need so much.

    Not for what it takes back anyway (`Reclaim.ANY`), nor for a gang that its own quota would never do for.
    """
    return (
        queue.lending is Lending.WHEN_IDLE
        and queue.preemption.reclaim is not Reclaim.ANY
        and _is_within_nominal(queue, needed)
    )


def is_short(outcome: object) -> bool:
    """Return whether the outcome is a hold for quota."""
    return isinstance(outcome, Hold) and outcome.reason is HoldReason.QUOTA_EXCEEDED


def kept_charge(verdict: Verdict, inputs: Inputs, last: Charge, idle: QueueUsage) -> Charge | None:
    """Return the charge for which the queue of a gang that is held for quota keeps its own; None if it keeps nothing.

    Of the kinds of devices that the queue prefers, it is that of the first one that its own quota would do for. last:
    for which it kept quota for this gang before; it counts while a lower bound is short, since no plan is asked then.
    idle: the quotas as if nothing were used.
    """
    queue = inputs.queue
    if not may_keep(queue, {}):
        return None
    if verdict.by == QUOTA:
        return _short(queue, verdict.needed, last) if may_keep(queue, verdict.needed) else None
    asked = chain.with_demand(replace(inputs, group=elastic.smallest(inputs.group), known=None, blocked_by=""))
    for kind, least in _options(asked):
        if not may_keep(queue, least):
            continue
        if not inputs.queue_usage.fits(queue.name, least):
            return _short(queue, least, last)
        find = partial(_planned, replace(asked, only=kind), idle)
        planned = asked.rules.workspace.verdicts.own_charge(inputs.group, kind, inputs.cluster, find)
        if planned is not None:
            return planned
    return None


def _is_within_nominal(queue: Queue, charge: Charge) -> bool:
    nominal = {quota.meter: quota.nominal for quota in queue.quotas}
    return all(amount <= nominal.get(meter, 0) for meter, amount in charge.items())


def _short(queue: Queue, least: Charge, last: Charge) -> Charge:
    more = {meter: max(least.get(meter, 0), last.get(meter, 0)) for meter in least.keys() | last.keys()}
    return more if _is_within_nominal(queue, more) else least


def _options(asked: Inputs) -> Sequence[tuple[str | None, Charge]]:
    """Return the kinds of devices, None for any, each with the least charge on it."""
    kinds = [(one.name, chain.least_charge(one, asked)) for one in chain.attempts(asked)]
    return kinds or [(None, asked.needed)]


def _planned(asked: Inputs, idle: QueueUsage) -> Charge | None:
    """Return the charge of a plan for which the queue's own quota would do; None if there is none now."""
    queue = asked.queue

    def allows(charge: Charge) -> Shortfall | None:
        return None if _is_within_nominal(queue, charge) else preference.WouldBorrow(queue.name)

    found = chain.decide(replace(asked, rules=asked.rules.on_trial(), queue_usage=idle, allows=allows)).outcome
    return found.plan.charge if isinstance(found, Grant) else None


def keep_again(group: Group, queue: Queue, charge: Charge) -> bool:
    """Return whether a queue still keeps quota for a gang for which it did in an earlier cycle.

    Also where there is enough for the gang now, until it has its turn: it may come after a borrower in another branch.
    """
    return bool(group.waiting) and not group.runs and group.queue == queue.name and may_keep(queue, charge)
