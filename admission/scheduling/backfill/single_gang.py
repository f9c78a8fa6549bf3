"""The decision about one gang outside of the cycle, beside the reservations of heads ahead of it.

Preemption plans gangs in cluster states without their victims. Reservations are evaluated as they would be in such a
state; none is made or dropped here.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from admission.dra.state.what_if import WhatIfSeries
from admission.scheduling.backfill import precedence
from admission.scheduling.backfill.policy import Backfill
from admission.scheduling.backfill.reservations import UsageExcludingReserved
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.cache.verdict_cache import Verdict
from admission.scheduling.checks import chain
from admission.scheduling.checks.chain import Grant, Inputs


def granted(
    inputs: Inputs,
    absent: Collection[str],
    backfill: Backfill | None,
    start: datetime | None = None,
    *,
    spares_all: bool = True,
    may_borrow: bool = True,
) -> Verdict | None:
    """Return the grant of a gang; None if it is held, or would delay a reservation of a head ahead of it.

    absent: running gangs that are removed from the inputs' cluster state. start: when the gang starts; None for now.
    spares_all: whether to return None also if a reservation falls in that state anyway. may_borrow: whether the gang's
    queue may borrow for the plan.
    """
    found = chain.decide(inputs)
    if backfill is None or not isinstance(found.outcome, Grant):
        return found if isinstance(found.outcome, Grant) else None
    ahead = [*backfill.ahead(inputs, found.outcome.plan.charge, absent, start or backfill.now)]
    bound = [one for one in ahead if one is not None]
    if spares_all and len(bound) < len(ahead):
        return None
    if all(one.leaves(inputs.group, found.outcome.plan) for one in bound):
        return found
    rules, queue_usage = (
        replace(inputs.rules, workspace=replace(inputs.rules.workspace, plans=PlanCache()), mute=True),
        UsageExcludingReserved(inputs.queue_usage, bound),
    )
    cluster = WhatIfSeries("single gang").cluster(inputs.cluster, kept=[one.arrival for one in bound])
    decision = chain.decide(replace(inputs, rules=rules, cluster=cluster, queue_usage=queue_usage))
    if isinstance(decision.outcome, Grant):
        plan = decision.outcome.plan
        return decision if all(one.leaves_pods(inputs.group, plan) for one in bound) else None
    own = precedence.without_loans(inputs, bound) if may_borrow else None
    if own is None:
        return None
    return granted(own, absent, backfill, start, spares_all=spares_all, may_borrow=False)
