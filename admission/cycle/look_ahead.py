"""The look ahead at pods that workloads make later: whether they would fit an empty cluster with all of their queue.

Each later wave is decided about like any gang, with the pods that the webhook would complete: alone, since it may start
when all others have ended, so that nothing that is in use now says anything about it; then as one gang with those of
its workload beside which it runs, so that what all of them need at once is judged together.
"""

import hashlib
import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.owners import LaterWave, Parent
from admission.api.kubernetes.pods import Pod
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values import names, reasons
from admission.api.values.names import MeterName, Uid
from admission.api.values.reasons import Denial, Hold, HoldReason
from admission.cycle.state.fences import FenceState
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.result import CycleLog
from admission.cycle.state.scheduling_cache import SchedulingCache
from admission.cycle.state.term import CycleSettings
from admission.dra.state import nodes_to_come, what_if
from admission.dra.state.cluster_state import ClusterState
from admission.errors import MalformedObjectError, RetryError
from admission.quota import fair_share
from admission.quota.headroom import QueueUsage
from admission.review import expected_pods
from admission.review.caches import ReviewCaches
from admission.scheduling.cache.verdict_cache import Verdict
from admission.scheduling.capacity.node_needs import MOST_TO_COME
from admission.scheduling.checks import chain, completeness, demand, faults
from admission.scheduling.checks.chain import Inputs, Rules, Workspace
from admission.scheduling.checks.faults import During
from admission.status import later_waves
from admission.status.later_waves import MOST, LaterWaves
from admission.workloads import gangs, suspendable
from admission.workloads.gangs import Group
from admission.workloads.suspendable import Holdable, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAhead:
    """Looks at the later waves of some workloads."""

    settings: CycleSettings
    mirror: LedgerMirror
    fences: FenceState
    cache: SchedulingCache
    reviews: ReviewCaches
    waves: LaterWaves
    log: CycleLog

    def examine(self, inputs: CycleInputs) -> None:
        """Find out of some workloads why their later waves never fit."""
        snapshot = inputs.snapshot
        basis = (snapshot.nodes, snapshot.slices, snapshot.classes, snapshot.templates, snapshot.policies, inputs.tree)
        due = self.waves.begin(snapshot.parents, (*basis, snapshot.shapes, inputs.meters, inputs.profile), inputs.clock)
        left, empty = MOST, None
        for parent in due:
            question = _question(parent)
            if self.waves.is_fitting(question):
                self.waves.answer(parent, question, ())
                continue
            if not left:
                return
            left -= 1
            if empty is None:
                # Expected claims may have the UIDs of claims that are known.
                empty = what_if.empty(self.cache.build_cluster(inputs, self.mirror.book), without_claims=True)
                if snapshot.shapes:
                    empty = nodes_to_come.joined_to(empty, snapshot, most=MOST_TO_COME)
            found = faults.guard(
                During.PLANNING, parent.meta.key, partial(self._sentences, parent, inputs, empty), self.log.defects
            )
            if found is POSTPONED:
                self.waves.postpone(parent)
            else:
                self.waves.answer(parent, question, found)

    def _sentences(self, parent: Parent, inputs: CycleInputs, empty: ClusterState) -> tuple[str, ...]:
        """Return why later waves of a workload never fit; POSTPONED while its namespace is not observed."""
        kinds = (
            suspendable.WITH_TEMPLATES.get(key)
            for key, found in inputs.snapshot.parents.items()
            if parent.meta.uid in found
        )
        kind = next(filter(None, kinds))
        found: dict[tuple[str, ...], str] = {}
        try:
            for wave in parent.later:
                why = None if wave.roles in found else self._never_fits(wave, parent, kind, inputs, empty)
                if why is not None:
                    found[wave.roles] = later_waves.sentence(
                        wave.roles, wave.running_roles, f"{why.reason}: {why.message}"
                    )
        except RetryError:
            return POSTPONED
        return tuple(found.values())[: later_waves.MOST_SAID]

    def _never_fits(
        self, wave: LaterWave, parent: Parent, kind: Holdable, inputs: CycleInputs, empty: ClusterState
    ) -> Hold | Denial | None:
        """Return why the pods of a wave never fit; None if they may. Raises RetryError."""
        alone = replace(parent, templates=wave.templates, waves=wave.waves, roles=wave.waves_of)
        workload = Workload(kind=kind, obj=alone)
        try:
            made = expected_pods.expected(workload, inputs.snapshot, self.reviews)
        except MalformedObjectError:
            return None
        if not isinstance(made, tuple):
            return made if isinstance(made, Denial) else None
        own: Mapping[str, Parent] = {parent.meta.uid: alone}
        parents = {**inputs.snapshot.parents, kind.key: own}
        snapshot = replace(_alone(inputs.snapshot, *made), parents=parents)
        rules = Rules(
            snapshot=snapshot,
            tree=inputs.tree,
            meters=inputs.meters,
            selectors=self.cache.selectors,
            now=inputs.now,
            clock=inputs.clock,
            steps=max(self.settings.steps // SHARE, 1),
            profile=inputs.profile,
            workspace=Workspace(defects=self.log.defects),
            sharing=fair_share.Rules.from_tree(inputs.tree),
            protection=self.fences.protections,
        )
        for group in gangs.groups(snapshot, {}):
            queue = completeness.entered(group, snapshot)
            if isinstance(queue, Queue):
                usage = QueueUsage(inputs.tree, {})
                verdict = chain.decide(Inputs(rules=rules, group=group, queue=queue, cluster=empty, queue_usage=usage))
                final = _final(verdict)
                if final is not None:
                    hold = _by_template(final, group, workload, rules)
                    hold = replace(hold, message=later_waves.reason(hold, snapshot, wave.running_roles))
                    return reasons.for_reader(hold, {parent.meta.namespace})
        return None


SHARE = 8
"""Divisor of the steps of a search: a cycle waits for it, and what is not found in time is not said."""

POSTPONED: tuple[str, ...] = ("",)
"""The answer about a workload that cannot be looked at yet."""


def _final(verdict: Verdict) -> Hold | Denial | None:
    """Return why a gang to which everything is free never starts; None if it may."""
    outcome = verdict.outcome
    if isinstance(outcome, Denial):
        return outcome
    return outcome if isinstance(outcome, Hold) and reasons.never_fits(outcome, verdict.needed) else None


def _by_template(final: Hold | Denial, group: Group, workload: Workload, rules: Rules) -> Hold | Denial:
    """Return why a gang never starts; for want of quota with what pods of each template need, if several need any."""
    if not isinstance(final, Hold) or final.reason is not HoldReason.QUOTA_EXCEEDED:
        return final
    meter, needed = MeterName(str(final.details.get("meter"))), final.details.get("needed")
    demands = {one.pod.meta.uid: one for one in demand.demands(group, rules.snapshot)}
    found: dict[str, int] = {}
    first = 0
    for template in workload.templates:
        uids = (names.expected_pod(workload.meta.uid, first + number) for number in range(template.pods))
        own = [demands[uid] for uid in uids if uid in demands]
        found[template.name] = demand.at_least(own, rules.meters, rules.snapshot.nodes.values()).get(meter, 0)
        first += template.pods
    parts = [f"{name} needs {amount}" for name, amount in found.items() if amount]
    # Claims that pods of several templates share would count more than once.
    if len(parts) < 2 or str(sum(found.values())) != needed:
        return final
    return replace(final, message=f"{final.message}; of these {needed} {meter} {', '.join(parts)}")


def _alone(snapshot: Snapshot, pods: Mapping[Uid, Pod], claims: Mapping[str, Claim]) -> Snapshot:
    """Return a snapshot with these pods and claims alone, and those that the pods name, allocated to nobody."""
    keys = (f"{pod.meta.namespace}/{name}" for pod in pods.values() for one in pod.claims if (name := one.claim))
    named = {key: found for key in keys if (found := snapshot.claims.get(key)) is not None}
    free = {key: replace(one, allocation=None, reserved_for=()) for key, one in named.items()}
    return replace(snapshot, pods=pods, jobs={}, gangs={}, claims={**free, **claims})


def _question(parent: Parent) -> Hashable:
    """Return a digest of what a look at a workload depends on, equal for workloads of one template."""
    waves = [
        (wave.roles, [(one.pods, one.exclusive, one.has_own_nodes, one.body) for one in wave.templates])
        for wave in parent.later
    ]
    asked = (parent.meta.namespace, parent.meta.annotations.get(names.USER, ""), waves)
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).digest()
