"""Deleted queues whose gangs still run: they keep their place in the tree, so that their deletion frees no quota.

Otherwise what a deleted queue has borrowed would count against no queue, and its siblings could borrow it again. The
ledger does not record parents, so the Queue object has to stay: it has the finalizer `muster.dev/in-use` while it, or a
queue below it, has open entries in the ledger. (Kueue keeps a ClusterQueue in this way, with
`kueue.x-k8s.io/resource-in-use`.)

A user may remove the finalizer by hand, and an edit may make a queue malformed. Then a leader keeps the queues that it
has seen disappear, but the next leader does not know of them. The same holds for what a deleted queue has spent of a
budget above it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from admission.api.kubernetes.meta import Meta
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import QueueName

Queues = Mapping[QueueName, Queue]


@dataclass(frozen=True, slots=True)
class FinalizerRefusal:
    """Why Muster's finalizer could not be removed from a queue, and when to try again."""

    why: str
    until: datetime

    @property
    def message(self) -> str:
        """Return why the queue stays, and the remedy."""
        return (
            f"Muster may not take its finalizer {names.IN_USE} away: {self.why}; mend that, or take it away by hand"
            ' (see "Deleting a queue" in docs/concepts.md)'
        )


def gone_queues(snapshot: Snapshot, *, seen: Queues, gone: Queues) -> dict[QueueName, Queue]:
    """Return the queues that are gone now. seen: those of the snapshot before; gone: those that were gone even then.

    A deleted queue has no quota any more; a malformed one keeps its quota, as it does in the ledger.
    """
    missing = {name: queue for name, queue in {**gone, **seen}.items() if name not in snapshot.queues}
    return {name: _without_nominations(queue, snapshot) for name, queue in missing.items()}


def without_finalizer(snapshot: Snapshot) -> list[Meta]:
    """Return the queues without the finalizer; a queue that is being deleted cannot get it any more."""
    return [
        queue.meta
        for queue in snapshot.queues.values()
        if names.IN_USE not in queue.meta.finalizers and queue.meta.deleted is None
    ]


def removable(snapshot: Snapshot, queues: Queues, placements: Iterable[Placement]) -> list[Meta]:
    """Return the deleted queues whose finalizer Muster may remove. queues: as in `users`.

    A malformed queue is deleted like any other.
    """
    metas = [*(queue.meta for queue in snapshot.queues.values()), *snapshot.unread_queues.values()]
    waiting = [meta for meta in metas if meta.deleted is not None and names.IN_USE in meta.finalizers]
    if not waiting:
        return []
    in_use = users(queues, placements)
    return [meta for meta in waiting if meta.name not in in_use]


def users(queues: Queues, placements: Iterable[Placement]) -> dict[QueueName, list[Placement]]:
    """Return the open entries of gangs in or below each queue. queues: those that exist or keep a place."""
    found: dict[QueueName, list[Placement]] = {}
    for placement in placements:
        for name in _ancestors(placement.queue, queues):
            found.setdefault(name, []).append(placement)
    return found


def _ancestors(queue: QueueName, queues: Queues) -> Iterator[QueueName]:
    """Yield a queue and its declared ancestors, which need not have a place in the tree."""
    seen: set[QueueName] = set()
    ancestor: QueueName | None = queue
    while ancestor is not None and ancestor not in seen:
        seen.add(ancestor)
        yield ancestor
        declared = queues.get(ancestor)
        ancestor = declared.parent if declared is not None else None


def _without_nominations(queue: Queue, snapshot: Snapshot) -> Queue:
    is_malformed = ("Queue", queue.name) in snapshot.malformed
    return replace(queue, quotas=queue.quotas if is_malformed else (), budgets=(), fair_sharing=None)
