"""Which queues are kept from being deleted, and which of them may go."""

from dataclasses import replace

from admission.api.kubernetes.meta import Meta
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import GangUid, QueueName
from admission.lifecycle import deleted_queues
from tests.builders import NOON, a_cluster


def a_snapshot() -> Snapshot:
    """Queues that are kept or not, and being deleted or not."""
    snapshot = a_cluster().queue("kept").queue("fresh").queue("going").queue("gone").snapshot()

    def changed(name: str, meta: Meta) -> Meta:
        finalizers = (names.IN_USE,) if name in {"kept", "going"} else ()
        return replace(meta, finalizers=finalizers, deleted=NOON if name in {"going", "gone"} else None)

    queues = {name: replace(queue, meta=changed(name, queue.meta)) for name, queue in snapshot.queues.items()}
    return replace(snapshot, queues=queues)


def test_a_queue_that_is_not_being_deleted_is_to_be_kept() -> None:
    assert [meta.name for meta in deleted_queues.without_finalizer(a_snapshot())] == ["fresh"]


def test_a_deleted_queue_may_go_when_nobody_uses_it() -> None:
    snapshot = a_snapshot()
    user = Placement(gang_uid=GangUid("g"), gang="team/g", queue=QueueName("going"), reserved_at=NOON)

    assert [meta.name for meta in deleted_queues.removable(snapshot, snapshot.queues, [])] == ["going"]
    assert deleted_queues.removable(snapshot, snapshot.queues, [user]) == []
