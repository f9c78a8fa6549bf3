"""The earliest time at which a plan exists for a gang, as running gangs end one after the other.

Enumerated are the ends of running gangs and of reservations ahead, in ascending order, each with the state in which all
due by then have ended. From one time to the next usage only decreases, so what counting allows at one time it allows at
all later ones; the same is assumed of plans. So both searches go by doubling steps and bisection.

Plans are expensive and counting is cheap. So the search first finds the earliest end that counting (quota, and room for
the gang's pods on any node) does not rule out, and only plans from there on. Counting is an upper bound: a time that it
rules out has no plan. The planner's budget bounds each plan; at its end the time counts as one without a plan.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from admission.api.muster.gangs import Charge
from admission.dra.planner.candidate_nodes import CapacityBound
from admission.dra.requests.gang_request import Plan
from admission.dra.state.what_if import WhatIfSeries
from admission.quota.headroom import QueueUsage
from admission.scheduling.backfill import reservations
from admission.scheduling.backfill.reservations import Moment, Reservation, Times
from admission.scheduling.backfill.running_gangs import RunningGangs
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.checks import chain, elastic
from admission.scheduling.checks.chain import Grant, Inputs, Workspace
from admission.scheduling.placement import mode
from admission.workloads import topology

Others = Callable[[datetime, Charge, QueueUsage], Sequence[Reservation]]
"""Returns the reservations of heads ahead of a gang that have not ended at a time, by its charge and the usage then."""


@dataclass(slots=True, kw_only=True)
class Search:
    """One search, for the gang of its inputs. later: builds the cluster states without the ended gangs."""

    inputs: Inputs
    present: RunningGangs
    later: WhatIfSeries
    others: Others
    _shortage: CapacityBound | None = None
    _moments: dict[datetime, Moment] = field(default_factory=dict)
    _may_fit_at: dict[datetime, bool] = field(default_factory=dict)
    _plans: dict[datetime, Plan | None] = field(default_factory=dict)

    def first(self, times: Times, guess: datetime | None = None) -> tuple[Moment, Plan] | None:
        """Return the moment of the first of these times at which there is a plan, and the plan; None if there is none.

        guess: about when it may be; the result does not depend on it.
        """
        start = 0 if guess is None else times.near(guess)
        low = reservations.first(times, self._may_fit, start)
        if low is None:
            return None
        # If room was counted, there mostly is a plan as soon as counting allows one: begin there.
        found = reservations.first(times, self._fits, low if self._shortage is not None else max(low, start))
        plan = self._plans[times[found]] if found is not None else None
        return None if found is None or plan is None else (self._moments[times[found]], plan)

    def _may_fit(self, at: datetime) -> bool:
        """Return whether counting does not rule out a plan at a time."""
        if at not in self._may_fit_at:
            self._may_fit_at[at] = self._is_enough(at)
        return self._may_fit_at[at]

    def _is_enough(self, at: datetime) -> bool:
        inputs, moment = self.inputs, self._moment(at)
        if not elastic.is_whole(inputs.group):
            return True
        if not moment.queue_usage.fits(inputs.queue.name, inputs.needed):
            return False
        if self._shortage is None:
            self._shortage = capacity_bound(replace(inputs, cluster=moment.cluster))
        return self._shortage is None or not self._shortage.is_felt(moment.cluster)

    def _fits(self, at: datetime) -> bool:
        """Return whether there is a plan at a time."""
        if at not in self._plans:
            self._plans[at] = planned(self.inputs, self._moment(at), PlanCache()) if self._may_fit(at) else None
        return self._plans[at] is not None

    def _moment(self, at: datetime) -> Moment:
        if at not in self._moments:
            removed = self.present.removed(at)
            queue_usage = reservations.usage_without(self.inputs.queue_usage, removed)
            others = self.others(at, self.inputs.needed, queue_usage)
            cluster = self.later.cluster(
                self.inputs.cluster, removed=[one.interval for one in removed], arrived=[one.arrival for one in others]
            )
            reservations.charge(queue_usage, others)
            self._moments[at] = Moment(at, cluster, queue_usage, removed)
        return self._moments[at]


def planned(inputs: Inputs, moment: Moment, plans: PlanCache) -> Plan | None:
    """Return a plan for a gang at a moment; None if there is none. plans: proofs for states of the same series."""
    rules = replace(inputs.rules, workspace=Workspace(plans=plans, verdicts=inputs.rules.workspace.verdicts), mute=True)
    later_inputs = replace(inputs, rules=rules, cluster=moment.cluster, queue_usage=moment.queue_usage, blocked_by="")
    found = chain.decide(later_inputs).outcome
    return found.plan if isinstance(found, Grant) else None


def capacity_bound(inputs: Inputs) -> CapacityBound | None:
    """Return the proof by counting that there is no plan, to be repeated in other states; None if there can be none.

    inputs: with demands, of a gang whose pods start together (`elastic.is_whole`).
    """
    rules, wanted = inputs.rules, mode.requested(inputs.group.record, inputs.queue)
    is_free = topology.request(inputs.group) is None
    return chain.planner(rules).capacity_bound(inputs.demands, inputs.cluster, wanted) if is_free else None
