"""Queues that are gone while their gangs run: they keep their place in the tree, so that nothing gets free by it.

Without them, what a deleted queue has borrowed, or spent of a budget above it, would count against nobody, and its
siblings could take it once more. It is so as well where an edit has left a queue that cannot be read. The ledger does
not say who was whose parent: a leader keeps what it has seen go, the next one does not know of it.
"""

from collections.abc import Mapping
from dataclasses import replace

from admission.api.names import QueueName
from admission.api.queues import Queue
from admission.api.snapshot import Snapshot

Queues = Mapping[QueueName, Queue]


def after(snapshot: Snapshot, *, seen: Queues, gone: Queues) -> dict[QueueName, Queue]:
    """Return the queues that are gone now. seen: those that were there before; gone: those that were not, even then.

    A queue that was deleted has no quota any more; one that cannot be read keeps what it had, as it does in the ledger.
    """
    left = {name: queue for name, queue in {**gone, **seen}.items() if name not in snapshot.queues}
    return {name: _without_promises(queue, snapshot) for name, queue in left.items()}


def placed(snapshot: Snapshot, gone: Queues) -> list[Queue]:
    """Return the queues to make the tree of: of those that are gone, the ones that none that is there has as parent.

    The children of the others have to be told that their parent is missing.
    """
    parents = {queue.parent for queue in snapshot.queues.values()}
    return [*snapshot.queues.values(), *(queue for name, queue in gone.items() if name not in parents)]


def _without_promises(queue: Queue, snapshot: Snapshot) -> Queue:
    unread = ("Queue", queue.name) in snapshot.malformed
    return replace(queue, quotas=queue.quotas if unread else (), budgets=(), fair_sharing=None)
