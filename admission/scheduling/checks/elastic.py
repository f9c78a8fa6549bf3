"""Elastic gangs, which may start with fewer than all of their pods: how many start now.

As many as fit, but at least the gang's minimum. Once those run, each of the others joins when it fits. The leader
(Ray's head, the master of a training job) is among the first; the others come in the natural order of their names.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace

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
"""The reasons of holds that fewer pods may avoid."""

MOST_KINDS = 8
"""The most sorts of pods that are tried one after the other for joining a running gang."""

Decide = Callable[[Group], Verdict]


def largest(group: Group, decide: Decide, *, fewest: int | None = None) -> Verdict:
    """Return the verdict for the most pending pods that may start together, else for the fewest.

    fewest: how many these are, if not as `least` says.

    What holds the fewest pods holds more of them as well, so their verdict stands for the whole gang. The bisection for
    the most pods relies on the same.
    """
    found = decide(group)
    fewest, most = least(group) if fewest is None else fewest, len(group.waiting)
    if fewest >= most or not is_too_large(found):
        return found
    waiting, best = _fewest(group, fewest, decide)
    if is_too_large(best) and group.started and fewest == 1:
        best = _any(group, waiting, decide, best)
    elif is_granted(best):
        best = _most(group, waiting, decide, best, fewest)
    return replace(best, group=group)


def least(group: Group) -> int:
    """Return how many of the pending pods have to start together."""
    return 1 if group.started else group.still_needed


def is_whole(group: Group) -> bool:
    """Return whether all pending pods start together or none does."""
    return least(group) >= len(group.waiting)


def smallest(group: Group) -> Group:
    """Return the gang with the fewest pending pods that may start together."""
    return group if is_whole(group) else group.without(in_order(group)[least(group) :])


def blocks(group: Group, queue: Queue) -> bool:
    """Return whether a held gang blocks those behind it: in a strict queue, unless its minimum runs already."""
    return queue.strategy is QueueingStrategy.STRICT_FIFO and not group.runs


def in_order(group: Group) -> list[Pod]:
    """Return the pending pods, leaders first, and then those with which others have to be."""
    terms = {term for pod in group.waiting for term in pod.rules.affinity}

    def rank(pod: Pod) -> tuple[bool, bool, Hashable]:
        is_wanted = any(term.matches(pod.meta.namespace, pod.meta.labels, {}) for term in terms)
        return not catalog.is_leader(pod), not is_wanted, pod_groups.natural(pod.meta.name)

    return sorted(group.waiting, key=rank)


def is_too_large(found: Verdict) -> bool:
    """Return whether a gang is held for a reason that fewer pods may avoid."""
    return isinstance(found.outcome, Hold) and found.outcome.reason in TOO_LARGE


def is_granted(found: Verdict) -> bool:
    """Return whether the verdict is a grant."""
    return not isinstance(found.outcome, Hold | Denial)


def _fewest(group: Group, fewest: int, decide: Decide) -> tuple[list[Pod], Verdict]:
    """Return the pending pods in the order in which they start, and the verdict on the fewest that have to.

    A pod whose own volumes keep it off every node gives way to one that differs in its volumes alone.
    """
    waiting = in_order(group)
    best = decide(group.without(waiting[fewest:]))
    for _ in range(MOST_KINDS):
        named = best.outcome.details.get("pod") if isinstance(best.outcome, Hold) and is_too_large(best) else None
        stuck = next((pod for pod in waiting[:fewest] if pod.meta.name == named and pod.rules.volumes), None)
        if stuck is None or not any(_differ_in_volumes(stuck, other) for other in waiting[fewest:]):
            break
        waiting.remove(stuck)
        waiting.append(stuck)
        best = decide(group.without(waiting[fewest:]))
    return waiting, best


def _most(group: Group, waiting: Sequence[Pod], decide: Decide, best: Verdict, fewest: int) -> Verdict:
    """Return the grant to the most pods, by bisection. best: the one to the fewest; all of them are too many."""
    most = len(waiting)
    while fewest + 1 < most:
        middle = (fewest + most) // 2
        tried = decide(group.without(waiting[middle:]))
        if is_granted(tried):
            fewest, best = middle, tried
        else:
            most = middle
    return best


def _any(group: Group, waiting: Sequence[Pod], decide: Decide, first: Verdict) -> Verdict:
    """Return the grant to one pod of another sort than the first, else the verdict on the first."""
    for candidate in list(_kinds(waiting))[1:MOST_KINDS]:
        tried = decide(group.without([pod for pod in waiting if pod is not candidate]))
        if is_granted(tried):
            return tried
        # The verdict on one sort does not hold for the others, so it is not kept.
        first = replace(first, by="")
    return first


def _kinds(waiting: Sequence[Pod]) -> Iterator[Pod]:
    """Yield the first pod of every sort: pods of a sort request the same."""
    known: set[Hashable] = set()
    for pod in waiting:
        kind = _sort(pod), pod.rules.volumes
        if kind not in known:
            known.add(kind)
            yield pod


def _sort(pod: Pod) -> Hashable:
    """Return what pods of one sort have in common, whatever volumes they have."""
    return equivalence.pod_key(pod), tuple((one.claim, one.template) for one in pod.claims)


def _differ_in_volumes(pod: Pod, other: Pod) -> bool:
    return pod.rules.volumes != other.rules.volumes and _sort(pod) == _sort(other)
