"""The waiting gangs queue by queue: a queue for which nothing changed is not gone through again.

While no gang may start, a decision depends only on the gang, the gangs ahead of it in its own queue, and what all
share: the cluster state, and what the queue may take. So a queue's verdicts stand as a whole while its gangs are the
same objects, none of its verdicts was dropped, and the few inputs that all of them rest on are the same.
"""

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from admission.api.muster.gangs import Charge
from admission.api.values.names import GangUid, QueueName
from admission.api.values.reasons import Hold
from admission.scheduling.cache.equivalence import GangEquivalence
from admission.scheduling.cache.plan_cache import InfeasibilityProof
from admission.workloads.gangs import Group


class Premise(NamedTuple):
    """What findings of one queue rest on: that it may take a charge, or lacks it just so, and their proof, if any.

    bound: the reservations beside which that is so.
    """

    needed: Charge
    shortage: Hold | None
    equivalent: GangEquivalence | None
    proof: InfeasibilityProof | None
    bound: tuple[Any, ...] = ()


Holds = Callable[[QueueName, Premise], bool]
"""Returns whether a ground still holds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CachedQueue:
    """The gangs of one queue, as they were counted, of each of which a decision stands on these inputs."""

    groups: tuple[Group, ...]
    inputs: tuple[Premise, ...]
    uids: frozenset[GangUid]


@dataclass(slots=True)
class QueueCache:
    """The lines that may still hold. One per leader."""

    _counted: tuple[Group, ...] = ()
    _waiting: dict[QueueName, tuple[Group, ...]] = field(default_factory=dict)
    _queues: dict[QueueName, CachedQueue] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget every line."""
        self._queues.clear()

    def drop(self, queue: QueueName) -> None:
        """Forget a line of which something that was found does not stand any more."""
        self._queues.pop(queue, None)

    def waiting(self, groups: tuple[Group, ...]) -> Mapping[QueueName, tuple[Group, ...]]:
        """Return the gangs that wait, by queue."""
        if groups is not self._counted:
            found: dict[QueueName, list[Group]] = {}
            for group in groups:
                if group.waiting:
                    found.setdefault(group.queue, []).append(group)
            self._counted, self._waiting = groups, {queue: tuple(gangs) for queue, gangs in found.items()}
            for queue in self._queues.keys() - self._waiting.keys():
                del self._queues[queue]
        return self._waiting

    def changed(
        self, groups: tuple[Group, ...], holds: Holds, unsteady: Collection[GangUid]
    ) -> Iterator[tuple[QueueName, tuple[Group, ...]]]:
        """Yield the queues whose gangs have to be decided about. unsteady: gangs of which nothing is kept."""
        for queue, waiting in self.waiting(groups).items():
            cached = self._queues.get(queue)
            is_same = cached is not None and _same(cached.groups, waiting) and cached.uids.isdisjoint(unsteady)
            if cached is None or not is_same or not all(holds(queue, basis) for basis in cached.inputs):
                yield queue, waiting

    def keep(self, queue: QueueName, groups: tuple[Group, ...], inputs: Iterable[Premise]) -> None:
        """Remember that what was decided of all gangs of a queue may stand."""
        uids = frozenset(group.uid for group in groups)
        self._queues[queue] = CachedQueue(groups=groups, inputs=tuple(inputs), uids=uids)


def _same(left: tuple[Group, ...], right: tuple[Group, ...]) -> bool:
    return left is right or (len(left) == len(right) and all(map(operator.is_, left, right)))
