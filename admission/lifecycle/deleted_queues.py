"""Queues that are deleted while their gangs run keep their place in the tree, so that nothing becomes free by it.

Otherwise what a deleted queue has borrowed would count against no queue, and its siblings could take it once more. The
ledger does not record parents, so the Queue itself has to stay: it carries the finalizer `muster.dev/in-use` while it,
or a queue below it, has anything open in the books. (Kueue keeps a ClusterQueue so, with
`kueue.x-k8s.io/resource-in-use`.)

The finalizer may be removed by hand, and an edit may leave a queue that cannot be read. Then a leader keeps what it has
seen go, and the next leader does not know of it. The same holds for what a deleted queue has spent of a budget above
it.
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
class Refusal:
    """That Muster may not take its finalizer from a queue: why, and until when it is not tried again."""

    why: str
    until: datetime

    @property
    def message(self) -> str:
        """Return what keeps the queue, and the fix."""
        return (
            f"Muster may not take its finalizer {names.IN_USE} away: {self.why}; mend that, or take it away by hand"
            ' (see "Deleting a queue" in docs/concepts.md)'
        )


def after(snapshot: Snapshot, *, seen: Queues, gone: Queues) -> dict[QueueName, Queue]:
    """Return the queues that are gone now. seen: those that were there before; gone: those that were not, even then.

    A queue that was deleted has no quota any more; one that cannot be read keeps what it had, as it does in the ledger.
    """
    left = {name: queue for name, queue in {**gone, **seen}.items() if name not in snapshot.queues}
    return {name: _without_nominations(queue, snapshot) for name, queue in left.items()}


def unkept(snapshot: Snapshot) -> list[Meta]:
    """Return the queues that do not carry the finalizer yet; one that is being deleted takes none any more."""
    return [
        queue.meta
        for queue in snapshot.queues.values()
        if names.IN_USE not in queue.meta.finalizers and queue.meta.deleted is None
    ]


def unused(snapshot: Snapshot, queues: Queues, placements: Iterable[Placement]) -> list[Meta]:
    """Return the queues that are being deleted and may lose Muster's finalizer. queues: as in `users`.

    A queue that cannot be read is deleted like any other.
    """
    metas = [*(queue.meta for queue in snapshot.queues.values()), *snapshot.unread_queues.values()]
    waiting = [meta for meta in metas if meta.deleted is not None and names.IN_USE in meta.finalizers]
    if not waiting:
        return []
    used = users(queues, placements)
    return [meta for meta in waiting if meta.name not in used]


def users(queues: Queues, placements: Iterable[Placement]) -> dict[QueueName, list[str]]:
    """Return the gangs that have anything open in or below each queue. queues: those that are there or keep a place."""
    found: dict[QueueName, list[str]] = {}
    for placement in placements:
        for name in _upwards(placement.queue, queues):
            found.setdefault(name, []).append(placement.gang)
    return found


def _upwards(queue: QueueName, queues: Queues) -> Iterator[QueueName]:
    """Yield a queue and those above it as they are declared, though they may have no place in the tree."""
    seen: set[QueueName] = set()
    above: QueueName | None = queue
    while above is not None and above not in seen:
        seen.add(above)
        yield above
        declared = queues.get(above)
        above = declared.parent if declared is not None else None


def _without_nominations(queue: Queue, snapshot: Snapshot) -> Queue:
    unread = ("Queue", queue.name) in snapshot.malformed
    return replace(queue, quotas=queue.quotas if unread else (), budgets=(), fair_sharing=None)
