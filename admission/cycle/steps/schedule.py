"""The scheduling step: which pending gangs start, as a pure function of the inputs, the book and the caches."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from admission.api.values.reasons import Hold, HoldReason
from admission.cycle.state.evictions import EvictionState
from admission.cycle.state.fences import FenceState
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.pending_pods import PendingPods
from admission.cycle.state.result import CycleLog
from admission.cycle.state.scheduling_cache import SchedulingCache
from admission.cycle.state.status import StatusState
from admission.cycle.state.term import CycleSettings
from admission.cycle.steps.preempt import Preemption
from admission.dra.state.cluster_state import ClusterState
from admission.quota import fair_share
from admission.quota.budgets import Balances
from admission.scheduling import cycle
from admission.scheduling.backfill.expected_end import ExpectedEnds
from admission.scheduling.backfill.policy import Backfill
from admission.scheduling.backfill.reservations import ExpectedEnd
from admission.scheduling.capacity.arrival_times import ArrivalTimes
from admission.scheduling.checks.chain import Rules, Workspace
from admission.scheduling.checks.faults import Defect
from admission.scheduling.cycle import CycleDecisions
from admission.scheduling.preemption.nominations import Nominations
from admission.scheduling.preemption.targets import PreemptionTargets

NOT_EXAMINED = Hold(
    HoldReason.LEDGER_UNAVAILABLE,
    "the ledger's database does not answer and nothing is granted without a row; the gang is looked at when it is back",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """Runs the scheduling cycle over the pending gangs."""

    settings: CycleSettings
    mirror: LedgerMirror
    fences: FenceState
    evictions: EvictionState
    pending: PendingPods
    expected_ends: ExpectedEnds
    arrivals: ArrivalTimes
    backfill: Backfill
    nominations: Nominations
    cache: SchedulingCache
    statuses: StatusState
    preemption: Preemption
    log: CycleLog

    def decide(
        self, inputs: CycleInputs, balances: Balances | None
    ) -> tuple[CycleDecisions, tuple[PreemptionTargets, ...]]:
        """Decide about every pending gang for which anything changed, and which gangs to evict for others."""
        cache, book = self.cache, self.mirror.book
        cache.check_meters(inputs)
        if not self.statuses.begin_decisions():
            cache.verdicts.forget_queues()
        self.nominations.keep_waiting(inputs.groups)
        if not any(group.waiting for group in inputs.groups):
            return CycleDecisions(), ()
        cluster = cache.predict_cluster(inputs, book, self.settings.steps)
        leaving = self.nominations.leaving(book.placements, cluster.users)
        ends, queues = self._find_ends(inputs, cluster), inputs.snapshot.queues
        expected = self.nominations.with_nominated(ends, queues, leaving.values())
        self.backfill.expect(expected, inputs.now)
        rules = self.rules(inputs, balances)
        return self.preemption.decide(inputs, rules, cluster, cache.usage(book))

    def rules(self, inputs: CycleInputs, balances: Balances | None) -> Rules:
        """Return the rules of the cycle."""
        return self._in_order(inputs, self._rules(inputs, balances, self.log.defects))

    def preload(self, inputs: CycleInputs) -> None:
        """Fill the caches that do not depend on decisions, so that a first cycle is as fast as any other."""
        self.cache.check_meters(inputs)
        self.cache.predict_cluster(inputs, self.mirror.book, self.settings.steps)

    def preload_verdicts(self, inputs: CycleInputs) -> None:
        """Plan the pending gangs, so that those that cannot start are known. Nothing is nominated or reserved."""
        cache, book = self.cache, self.mirror.book
        cluster = cache.predict_cluster(inputs, book, self.settings.steps)
        self._find_ends(inputs, cluster)
        if any(group.waiting for group in inputs.groups):
            rules = self._in_order(inputs, self._rules(inputs, self.mirror.balances(inputs), defects=[]))
            cycle.warm_caches(inputs.groups, rules, cluster, cache.usage(book))

    def _in_order(self, inputs: CycleInputs, rules: Rules) -> Rules:
        """Return the rules with the order of gangs by what the members of their queues use."""
        cache, placements = self.cache, self.mirror.book.placements
        cache.verdicts.follow(inputs.groups, inputs.by_uid)
        waiting = cache.verdicts.waiting(inputs.groups)
        needed = partial(cycle.needed, rules=rules)
        cache.members.read(self.mirror.past_member_usage, inputs.now)
        order = cache.members.order(waiting, placements, inputs.snapshot.namespaces, inputs.tree, needed)
        return replace(rules, order=order)

    def _find_ends(self, inputs: CycleInputs, cluster: ClusterState) -> Mapping[str, ExpectedEnd]:
        """Return the gangs that hold devices, with their expected ends."""
        placements, queues = self.mirror.book.placements, inputs.snapshot.queues
        if inputs.snapshot.shapes:
            self.arrivals.update(inputs.by_uid, queues.keys())
        return self.expected_ends.refresh(
            placements, inputs.by_uid, queues, cluster.users, waits=self.arrivals.medians, now=inputs.now
        )

    def _rules(self, inputs: CycleInputs, balances: Balances | None, defects: list[Defect]) -> Rules:
        beside, kinds_of_use = self.cache.beside(inputs.snapshot) if self.settings.strands_least else ({}, ())
        return Rules(
            snapshot=inputs.snapshot,
            tree=inputs.tree,
            meters=inputs.meters,
            selectors=self.cache.selectors,
            backoffs=dict(self.evictions.backoffs),
            now=inputs.now,
            clock=inputs.clock,
            steps=self.settings.steps,
            most_grants=self.settings.most_grants,
            beside=beside,
            kinds_of_use=kinds_of_use,
            profile=inputs.profile,
            workspace=Workspace(
                plans=self.cache.plans, verdicts=self.cache.verdicts, balances=balances, defects=defects
            ),
            sharing=fair_share.Rules.from_tree(inputs.tree),
            history=self.mirror.past_usage(inputs),
            hold_beyond_limit=NOT_EXAMINED if self.mirror.is_down else None,
            protection=self.fences.protections,
            unready=inputs.unready,
            first_in_next=inputs.first_in_next,
            vacant=self.evictions.vacancies,
            unfit=self.pending.problems,
            evicted=self.evictions.returning.usage(inputs.snapshot.queues),
        )
