"""Whether a gang that runs may grow, beside gangs of other queues that were evicted and come back.

An evicted gang is gone as a whole, and its pods are made again some time later. What it had of its queue's own quota
lies idle meanwhile. A pod that joins a running gang of another queue on that makes this gang one that borrows, which
the evicted gang may evict as a whole when it is there, to be evicted by it in turn, for ever. So such a pod waits until
the evicted gang runs again, or its pods are overdue. Who starts may borrow of it as ever.

Kueue has no such rule, since a workload of it does not grow pod by pod on quota that is free.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from admission.api.muster.gangs import Charge
from admission.api.values.names import QueueName
from admission.api.values.reasons import Detail
from admission.quota.headroom import QueueUsage
from admission.quota.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictedUsage:
    """What an evicted gang that comes back had of its queue. charge: None if that is not known; then all of it counts.

    until: when its pods are overdue.
    """

    queue: QueueName
    charge: Charge | None
    until: datetime


@dataclass(frozen=True, slots=True)
class KeptForEvicted:
    """The shortfall of a queue that would borrow what evicted gangs of others come back to.

    queues: of these gangs. until: when the pods of the last one are overdue.
    """

    queue: QueueName
    queues: tuple[QueueName, ...]
    until: datetime

    @property
    def message(self) -> str:
        at = self.until.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        named = ", ".join(self.queues)
        return (
            f"the gang runs, and queue {self.queue} would have to borrow for more pods of it what evicted gangs of"
            f" {named} had of their own quota; that is not lent until they run again, at the latest {at}"
        )

    @property
    def details(self) -> Mapping[str, Detail]:
        return {"queue": self.queue, "keptBy": [*self.queues]}


def shortfall(
    queue_usage: QueueUsage, queue: QueueName, charge: Charge, evicted: Sequence[EvictedUsage]
) -> KeptForEvicted | None:
    """Return why a queue that may take a charge may not do so for a gang of it that grows; None if it may.

    Monotonic: if it may take a charge, it may take a smaller one.
    """
    tree = queue_usage.tree
    path = tree.path(queue)
    beside = [one for one in evicted if one.queue != queue and tree.path(one.queue)[-1:] == path[-1:]]
    sides = [(_side(tree, one.queue, path), one.charge) for one in beside]
    if not beside or queue_usage.fits_beside(queue, charge, sides):
        return None
    queues = tuple(sorted({one.queue for one in beside}))
    return KeptForEvicted(queue, queues, max(one.until for one in beside))


def _side(tree: Tree, queue: QueueName, path: Sequence[QueueName]) -> QueueName:
    """Return the queue below the one where two paths meet, on that of `queue`; itself if it is on the other path."""
    return next((name for name in reversed(tree.path(queue)) if name not in path), queue)
