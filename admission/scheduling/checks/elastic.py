"""Gangs that may start with fewer than all of their pods: how many start now.

As many as fit, but at least the gang's minimum. Once those run, each of the others joins when it fits. The leader
(Ray's head, the master of a training job) is among the first; the others come in the natural order of their names.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence

from admission.api.kubernetes.pods import Pod
from admission.api.muster.queues import Queue, QueueingStrategy
from admission.api.values.reasons import Denial, Hold, HoldReason
from admission.dra.planner import pod_groups
from admission.scheduling.cache import equivalence
from admission.scheduling.cache.verdict_cache import Verdict
from admission.workloads.gangs import Group
from admission.workloads.kinds import catalog

TOO_LARGE = frozenset(
    {
        HoldReason.QUOTA_EXCEEDED,
        HoldReason.BUDGET_EXHAUSTED,
        HoldReason.DEVICES_BUSY,
        HoldReason.NO_FEASIBLE_PLACEMENT,
        HoldReason.POOL_INCOMPLETE,
        HoldReason.SEARCH_LIMIT,
    }
)
"""What fewer pods may not be held for."""

MOST_KINDS = 8
"""Sorts of pods that are tried one after the other, where any of them may join."""

Decide = Callable[[Group], Verdict]


def largest(group: Group, decide: Decide) -> Verdict:
    """Return what is found of as many of the pods that wait as may start together, or of the fewest that might.

    What holds these holds more of them as well, so it stands for the whole gang as long as it stands.
    """
    found = decide(group)
    fewest, most = least(group), len(group.waiting)
    if fewest >= most or not is_too_large(found):
        return found
    waiting = in_order(group)
    best = decide(group.without(waiting[fewest:]))
    if is_too_large(best) and group.started:
        best = _any(group, waiting, decide, best)
    elif is_granted(best):
        best = _most(group, waiting, decide, best)
    best.group = group
    return best


def least(group: Group) -> int:
    """Return how many of the pods that wait have to start together."""
    return 1 if group.started else group.still_needed


def blocks(group: Group, queue: Queue) -> bool:
    """Whether others wait behind a gang that is held: in a strict queue, unless as many as it needs have a place."""
    return queue.strategy is QueueingStrategy.STRICT_FIFO and not group.runs


def in_order(group: Group) -> list[Pod]:
    """Return the pods that wait, those first that the others are of no use without."""
    return sorted(group.waiting, key=lambda pod: (not catalog.leads(pod), pod_groups.natural(pod.meta.name)))


def is_too_large(found: Verdict) -> bool:
    """Whether a gang is held for what fewer of its pods might not be."""
    return isinstance(found.outcome, Hold) and found.outcome.reason in TOO_LARGE


def is_granted(found: Verdict) -> bool:
    """Whether pods may start."""
    return not isinstance(found.outcome, Hold | Denial)


def _most(group: Group, waiting: Sequence[Pod], decide: Decide, best: Verdict) -> Verdict:
    """Return the grant to the most pods that may start. best: the one to the fewest; all of them are too many."""
    fewest, most = least(group), len(waiting)
    while fewest + 1 < most:
        middle = (fewest + most) // 2
        tried = decide(group.without(waiting[middle:]))
        if is_granted(tried):
            fewest, best = middle, tried
        else:
            most = middle
    return best


def _any(group: Group, waiting: Sequence[Pod], decide: Decide, first: Verdict) -> Verdict:
    """Return the grant to one pod of another sort than the first, which is held."""
    for candidate in list(_kinds(waiting))[1:MOST_KINDS]:
        tried = decide(group.without([pod for pod in waiting if pod is not candidate]))
        if is_granted(tried):
            return tried
        # What holds one sort says nothing of the others: it is not kept.
        first.by = ""
    return first


def _kinds(waiting: Sequence[Pod]) -> Iterator[Pod]:
    """Yield the first pod of every sort: of those that ask for the same."""
    known: set[Hashable] = set()
    for pod in waiting:
        kind = equivalence.pod_key(pod), tuple((one.claim, one.template) for one in pod.claims)
        if kind not in known:
            known.add(kind)
            yield pod
