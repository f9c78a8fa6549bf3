"""The queue tree with deleted queues that still count, and the finalizers that were added to queues."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from admission.api.kubernetes.meta import Meta
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values.names import QueueName
from admission.incremental import Memo
from admission.lifecycle import deleted_queues
from admission.lifecycle.deleted_queues import FinalizerRefusal
from admission.quota.tree import Tree

ASK_AGAIN = timedelta(seconds=30)
"""How long until the removal of a finalizer is retried after the API server refused it."""


@dataclass(slots=True)
class QueueRegistry:
    """The queues that this leader has observed. One per leader.

    Rule: the tree is rebuilt if and only if the queues, or the deleted ones that still count, have changed.
    """

    _queues: Mapping[QueueName, Queue] = field(default_factory=dict)
    _gone: Mapping[QueueName, Queue] = field(default_factory=dict)
    """Queues that were deleted in this leader's term; their usage still counts at their place."""
    _trees: Memo[None, Tree] = field(default_factory=lambda: Memo(by_value=True))
    _refusals: dict[str, FinalizerRefusal] = field(default_factory=dict)
    """By deleted and unused queue, why its finalizer could not be removed."""
    _tried: dict[QueueName, str] = field(default_factory=dict)
    """By queue to which adding the finalizer was tried, the resource version at the time."""

    @property
    def gone(self) -> Mapping[QueueName, Queue]:
        return self._gone

    @property
    def refusals(self) -> Mapping[str, FinalizerRefusal]:
        return self._refusals

    def tree(self, snapshot: Snapshot) -> Tree:
        """Return the tree of the existing queues and of deleted ones that still count."""
        gone = deleted_queues.gone_queues(snapshot, seen=self._queues, gone=self._gone)
        self._queues, self._gone = snapshot.queues, gone
        return self._trees.get(
            None, (snapshot.queues, gone), lambda: Tree.build(snapshot.queues.values(), gone.values())
        )

    def without_finalizer(self, snapshot: Snapshot) -> dict[QueueName, Meta]:
        """Return the queues that lack the finalizer, without those already tried in this resource version."""
        self._tried = {name: version for name, version in self._tried.items() if name in snapshot.queues}
        missing = {QueueName(meta.name): meta for meta in deleted_queues.without_finalizer(snapshot)}
        return {name: meta for name, meta in missing.items() if self._tried.get(name) != meta.resource_version}

    def note_finalizers(self, queues: Mapping[QueueName, Meta], *, failed: Collection[str]) -> None:
        """Record the queues that were tried. failed: names of those to be retried in the same version."""
        self._tried |= {name: meta.resource_version for name, meta in queues.items() if name not in failed}

    def removable(self, unused: Iterable[Meta], now: datetime) -> list[Meta]:
        """Return those of the deleted and unused queues whose finalizer has to be removed now."""
        unused = list(unused)
        names = {meta.name for meta in unused}
        self._refusals = {name: refusal for name, refusal in self._refusals.items() if name in names}
        return [meta for meta in unused if self._is_due(meta, now)]

    def note_removal(self, queue: Meta, refused: str | None, now: datetime) -> FinalizerRefusal | None:
        """Record the outcome of a removal. refused: the API server's reason, if any. Return a refusal that is new."""
        before = self._refusals.pop(queue.name, None)
        if refused is None:
            return None
        refusal = self._refusals[queue.name] = FinalizerRefusal(refused, now + ASK_AGAIN)
        return refusal if before is None or before.why != refusal.why else None

    def _is_due(self, queue: Meta, now: datetime) -> bool:
        refusal = self._refusals.get(queue.name)
        return refusal is None or now >= refusal.until
