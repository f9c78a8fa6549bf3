"""Parts of a workload that are each alone in one domain of nodes, by the affinity that their controller writes.

JobSet's webhook writes it into the first pod of each Job with `exclusive-topology` (`setExclusiveAffinities` of
`pkg/webhooks/pod_webhook.go`, v0.12): with the pods of its own part, which a label names, and with those of no other.
LeaderWorkerSet's does the same for the leader of each group (`SetExclusiveAffinities` of `pkg/webhooks/pod_webhook.go`,
v0.7).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from admission.api.scheduling.scheduling_rules import AffinityTerm, SchedulingRules

JOB_KEY, JOBSET_EXCLUSIVE = "jobset.sigs.k8s.io/job-key", "alpha.jobset.sigs.k8s.io/exclusive-topology"
GROUP_KEY, GROUP_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/group-key", "leaderworkerset.sigs.k8s.io/exclusive-topology"

ANNOTATIONS: Mapping[str, str] = {JOB_KEY: JOBSET_EXCLUSIVE, GROUP_KEY: GROUP_EXCLUSIVE}
"""By the label of pods that names their part, the annotation by which users ask for a domain of its own for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExclusiveDomain:
    """The rules of a pod whose part is alone in a domain. label: of nodes. rules: those that say so. others: the rest.

    `rules` are its two terms alone, `others` everything else that the pod demands.
    """

    label: str
    rules: SchedulingRules
    others: SchedulingRules


def find(rules: SchedulingRules, key: str, part: str) -> ExclusiveDomain | None:
    """Return the exclusive domain that a pod demands for its part; None if it demands none.

    key: the label of pods that names their part. part: its value for this pod.
    """
    own = next((term for term in rules.affinity if _texts(term, key) == {("In", (part,))}), None)
    apart = next(
        (term for term in rules.anti_affinity if _texts(term, key) == {("Exists", ()), ("NotIn", (part,))}), None
    )
    if own is None or apart is None or own.topology_key != apart.topology_key:
        return None
    return ExclusiveDomain(
        label=own.topology_key,
        rules=SchedulingRules(affinity=(own,), anti_affinity=(apart,)),
        others=replace(
            rules,
            affinity=tuple(term for term in rules.affinity if term is not own),
            anti_affinity=tuple(term for term in rules.anti_affinity if term is not apart),
        ),
    )


def read(rules: SchedulingRules, key: str) -> bool:
    """Return whether rules read a label of pods."""
    of_terms = (term.selector for term in (*rules.affinity, *rules.anti_affinity))
    selectors = (*of_terms, *(constraint.selector for constraint in rules.spread))
    return any(one.key == key for found in selectors if found is not None for one in found.requirements)


def annotation(term: AffinityTerm) -> str:
    """Return the annotation for which a controller wrote a term; empty text if users may have written it themselves."""
    keys = {one.key for one in term.selector.requirements} if term.selector is not None else set[str]()
    return ANNOTATIONS.get(keys.pop(), "") if len(keys) == 1 else ""


def _texts(term: AffinityTerm, key: str) -> set[tuple[str, tuple[str, ...]]] | None:
    """Return what a term requires of the label; None if it requires anything else, or nothing."""
    requirements = term.selector.requirements if term.selector is not None else ()
    if any(one.key != key for one in requirements):
        return None
    return {(one.operator, one.values) for one in requirements}
