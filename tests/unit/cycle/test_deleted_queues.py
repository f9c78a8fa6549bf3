"""A Queue that is deleted while its gangs run: it stays until they have ended, whoever leads."""

from dataclasses import replace
from datetime import timedelta

import pytest

from admission.api.kubernetes.meta import Condition, Meta
from admission.api.muster import queue_references
from admission.api.muster.status_reports import EventType
from admission.api.values import names
from admission.api.values.names import QueueName
from admission.api.values.reasons import HoldReason
from admission.api.values.references import EVERYWHERE
from admission.cycle.state.result import CycleResult
from admission.errors import ForbiddenError, MusterError, RetryError
from tests.builders import NOON, ClusterBuilder, a_cluster
from tests.unit.cycle.test_cycle import GPUS, Cluster, Ledger, a_leader, gang, hold_of, run

HOUR = timedelta(hours=1)
LAB, X = QueueName("lab"), QueueName("x")


class Keeping(Cluster):
    """Notes which queues the finalizer is put on and taken from, and can refuse."""

    def __init__(self, builder: ClusterBuilder) -> None:
        super().__init__(builder)
        self.kept: list[str] = []
        self.freed: list[str] = []
        self.error: MusterError | None = None

    async def keep(self, queue: Meta) -> None:
        assert not self.opened, "it comes before anything is granted"
        self.kept.append(queue.name)
        if self.error is not None:
            raise self.error
        await super().keep(queue)

    async def release(self, queue: Meta) -> None:
        self.freed.append(queue.name)
        if self.error is not None:
            raise self.error
        await super().release(queue)


def a_lab() -> ClusterBuilder:
    return a_cluster().node("a", gpus=8).queue("lab", gpus=4).queue("x", gpus=0, parent="lab").queue("y", parent="lab")


def active(result: CycleResult, name: str) -> Condition:
    (report,) = [report for report in result.queues if report.name == name]
    return queue_references.for_reader(report, EVERYWHERE).conditions[0]


async def test_a_deleted_queue_keeps_its_borrowed_quota_under_a_new_leader_until_its_gangs_have_ended() -> None:
    builder = a_lab().job("one", queue="x", pods=4).job("two", queue="y", pods=4).job("late", queue="x")
    cluster, ledger = Cluster(builder), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    started = cluster.schedule(leader.mirror.book)
    await run(leader, NOON + HOUR)
    cluster.delete_queue(X, NOON + HOUR)

    leader = a_leader(cluster, ledger)
    result = await run(leader, NOON + 2 * HOUR)

    assert (hold_of(result, "two").reason, hold_of(result, "two").details["left"]) == (HoldReason.QUOTA_EXCEEDED, "0")
    assert hold_of(result, "late").reason is HoldReason.QUEUE_INACTIVE
    assert "queue x is being deleted and takes no new gangs" in hold_of(result, "late").message
    assert active(result, "x").reason == "Terminating"
    assert active(result, "x").message.endswith("has given its devices back: gang " + gang(result, "one").key)
    cluster.finish(started)
    assert (await run(leader, NOON + 3 * HOUR)).granted == (gang(result, "two").uid,)
    assert X not in cluster.snapshot().queues


async def test_a_deleted_queue_without_gangs_is_removed_at_once() -> None:
    cluster = Cluster(a_lab())
    leader = a_leader(cluster, Ledger())
    await run(leader)
    cluster.delete_queue(X, NOON)

    await run(leader, NOON + HOUR)

    assert set(cluster.snapshot().queues) == {"lab", "y"}


async def test_a_deleted_parent_queue_stays_for_the_gangs_below_and_admits_none_there() -> None:
    cluster, ledger = Cluster(a_lab().job("one", queue="x").job("two", queue="y", made=0)), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    started = cluster.schedule(leader.mirror.book)
    cluster.delete_queue(LAB, NOON)
    cluster._pods |= a_lab().job("three", queue="y").snapshot().pods

    result = await run(a_leader(cluster, ledger), NOON + HOUR)

    assert LAB in cluster.snapshot().queues
    assert gang(result, "one").key in active(result, "lab").message
    assert active(result, "y").reason == "AncestorInactive"
    assert result.granted == ()
    assert ledger.book.nominal(LAB, GPUS) == 4, "its quota is there while its gangs are"
    cluster.finish(started)
    await run(leader, NOON + 2 * HOUR)
    assert LAB not in cluster.snapshot().queues


async def test_while_the_ledger_does_not_have_the_release_the_queue_stays() -> None:
    cluster, ledger = Cluster(a_lab().job("one", queue="x")), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    started = cluster.schedule(leader.mirror.book)
    await run(leader, NOON)
    cluster.delete_queue(X, NOON)
    ledger.away = True
    cluster.finish(started)

    for hours in (1, 2):
        await run(leader, NOON + hours * HOUR)
        assert X in cluster.snapshot().queues
    ledger.away = False
    await run(leader, NOON + 3 * HOUR)

    assert X not in cluster.snapshot().queues


async def test_finalizers_of_other_controllers_stay_on_a_deleted_queue_and_are_named() -> None:
    cluster = Cluster(a_lab())
    leader = a_leader(cluster, Ledger())
    cluster._put_queue(cluster._rest.queues[X], finalizers=("example.org/backup",))
    await run(leader)
    assert cluster.snapshot().queues[X].meta.finalizers == ("example.org/backup", names.IN_USE)
    cluster.delete_queue(X, NOON)

    await run(leader, NOON + HOUR)

    result = await run(leader, NOON + 2 * HOUR)
    assert cluster.snapshot().queues[X].meta.finalizers == ("example.org/backup",)
    assert active(result, "x").message.endswith("others keep it by the finalizers example.org/backup")


async def test_a_queue_that_cannot_be_read_is_let_go_too() -> None:
    cluster = Keeping(a_lab())
    meta = Meta(name="broken", finalizers=(names.IN_USE,), deleted=NOON)
    cluster._rest = replace(cluster._rest, unread_queues={QueueName("broken"): meta})

    await run(a_leader(cluster, Ledger()))

    assert cluster.freed == ["broken"]


@pytest.mark.parametrize(
    ("error", "tries"), [(RetryError("busy"), 2), (ForbiddenError("no right"), 1)], ids=["busy", "for good"]
)
async def test_a_queue_finalizer_that_cannot_be_written_holds_no_gang(error: MusterError, tries: int) -> None:
    cluster = Keeping(a_cluster().node("a", gpus=8).queue("q", gpus=8))
    leader = a_leader(cluster, Ledger())
    cluster.error = error

    for minutes in (0, 1):
        await run(leader, NOON + timedelta(minutes=minutes))
    assert cluster.kept == ["q"] * tries
    cluster._put_queue(cluster._rest.queues[QueueName("q")], resource_version="9")
    cluster._pods |= (more := a_cluster().job("one", queue="q").snapshot()).pods
    cluster._claims |= more.claims
    cluster._jobs |= more.jobs

    assert len((await run(leader, NOON + HOUR)).granted) == 1
    assert len(cluster.kept) == tries + 1, "it has changed, and may take it now"


async def test_a_finalizer_that_cannot_be_taken_away_is_tried_again() -> None:
    cluster = Keeping(a_lab())
    leader = a_leader(cluster, Ledger())
    await run(leader)
    cluster.delete_queue(X, NOON)
    cluster.error = ForbiddenError("no right")
    await run(leader, NOON + HOUR)
    cluster.error = None

    await run(leader, NOON + 2 * HOUR)

    assert cluster.freed == ["x", "x"]
    assert X not in cluster.snapshot().queues


async def test_a_refused_queue_finalizer_write_is_an_event_once_and_stands_in_the_condition() -> None:
    cluster = Keeping(a_lab())
    leader = a_leader(cluster, Ledger())
    await run(leader)
    cluster.delete_queue(X, NOON)
    cluster.error = ForbiddenError("grant patch on queues.muster.dev")

    for seconds in range(0, 70, 10):
        result = await run(leader, NOON + HOUR + timedelta(seconds=seconds))

        assert "grant patch on queues.muster.dev; mend that, or take it away by hand" in active(result, "x").message
    assert cluster.freed == ["x"] * 3, "it is not asked in every cycle"
    (notice,) = [notice for notice in cluster.notices if notice.kind == "Queue"]
    assert (notice.name, notice.reason, notice.type) == ("x", "FinalizerKept", EventType.WARNING)
    assert "Muster may not take its finalizer muster.dev/in-use away: grant patch" in notice.message

    cluster.error = None
    await run(leader, NOON + 2 * HOUR)
    assert X not in cluster.snapshot().queues
    await run(leader, NOON + 3 * HOUR)
    assert leader.queues.refusals == {}
