"""The equivalence of gangs for preemption: equal in everything but names that a plan depends on.

A search for victims costs many plans, so it is done once for all equivalent gangs.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import Charge
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid
from admission.api.values.reasons import EvictionReason
from admission.dra.planner import pod_groups
from admission.filters import gang_rules
from admission.scheduling.cache import equivalence
from admission.scheduling.checks import budget, demand, elastic, runtime
from admission.scheduling.placement import mode
from admission.workloads import topology as workloads_topology
from admission.workloads.gangs import Group
from admission.workloads.kinds import catalog


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionQuestion:
    """The inputs of a plan for a gang; one object for all equivalent gangs."""

    content: Hashable


class _CachedQuestion(NamedTuple):
    group: Group
    queue: Queue
    needed: Charge
    labels: frozenset[str]
    question: PreemptionQuestion


@dataclass(slots=True)
class PreemptionQuestions:
    """The question of each gang, computed once: the claims of such a gang exist, and their specs are immutable.

    It is derived from the gang and its queue, compared by identity, and from its charge and the labels that the
    anti-affinity of running pods reads, compared by value, which `admission.incremental.Memo` does not mix.
    """

    _by_gang: dict[GangUid, _CachedQuestion] = field(default_factory=dict)
    _by_content: dict[Hashable, PreemptionQuestion] = field(default_factory=dict)

    def question(
        self, group: Group, queue: Queue, needed: Charge, snapshot: Snapshot, labels: frozenset[str] = frozenset()
    ) -> PreemptionQuestion:
        """Return the question of a gang. needed: a lower bound on its charge. labels: as of `content`."""
        known = self._by_gang.get(group.uid)
        if (
            known is None
            or known.group is not group
            or known.queue is not queue
            or (known.needed, known.labels) != (needed, labels)
        ):
            found = content(group, queue, needed, snapshot, labels)
            known = self._by_gang[group.uid] = _CachedQuestion(
                group, queue, needed, labels, self._by_content.setdefault(found, PreemptionQuestion(found))
            )
        return known.question

    def keep(self, gangs: Iterable[GangUid]) -> None:
        """Drop all other gangs."""
        kept = {*gangs}
        if len(self._by_gang) > len(kept):
            self._by_gang = {uid: one for uid, one in self._by_gang.items() if uid in kept}
            self._by_content = {one.question.content: one.question for one in self._by_gang.values()}


def content(
    group: Group, queue: Queue, needed: Charge, snapshot: Snapshot, labels: frozenset[str] = frozenset()
) -> Hashable:
    """Return all that a plan for a gang depends on.

    A claim that a pod names counts by its UID; one made from a template counts by its content. labels: those of pods
    that the anti-affinity of pods on nodes reads.
    """
    topology = workloads_topology.request(group)
    demands = workloads_topology.with_subgroups(demand.demands(group, snapshot), topology, group)
    labels |= gang_rules.own_labels(one.pod for one in demands)
    has_volumes = snapshot.storage is not None and any(one.pod.rules.volumes for one in demands)
    numbers = {uid: at for at, uid in enumerate(dict.fromkeys(c.meta.uid for one in demands for c in one.claims))}
    pods = tuple(
        (
            equivalence.pod_key(one.pod),
            tuple((key, one.pod.meta.labels[key]) for key in sorted(labels) if key in one.pod.meta.labels),
            (one.pod.meta.name, one.pod.rules.volumes) if has_volumes else (),
            one.pod.containers,
            one.subgroup,
            catalog.is_leader(one.pod),
            tuple((numbers[claim.meta.uid], _requested(claim, one.pod)) for claim in one.claims),
        )
        for one in sorted(demands, key=lambda one: pod_groups.natural(one.pod.meta.name))
    )
    charge = tuple(sorted(needed.items()))
    declared = runtime.declared_runtime(group, queue)
    terms = mode.requested(group.record, queue), elastic.least(group), declared, was_reclaimed(group)
    return queue.name, group.priority, group.identity.namespace, charge, terms, budget.runtime_of(group), topology, pods


def was_reclaimed(group: Group) -> bool:
    """Return whether the gang waits since others took back what its queue had borrowed."""
    evicted = group.record.evicted if group.record is not None else None
    return evicted is not None and evicted.reason is EvictionReason.RECLAIMED


def _requested(claim: Claim, pod: Pod) -> str:
    is_named = any(f"{pod.meta.namespace}/{one.claim}" == claim.meta.key for one in pod.claims if one.claim)
    return claim.meta.uid if is_named else equivalence.claim_key(claim)
