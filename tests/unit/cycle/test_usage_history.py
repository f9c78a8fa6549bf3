"""What budgets have spent, as a leader keeps it between marks."""

from dataclasses import replace
from datetime import datetime, timedelta

from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Bucket, Entry, Kind, MemberUsageInterval, Posting
from admission.api.values.names import MeterName, QueueName
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.usage_history import UsageHistory
from admission.dra.metering import device_meters
from admission.lifecycle.transitions import ObservedAllocations
from admission.quota.tree import Tree
from admission.simulation import in_memory
from tests.builders import NOON, a_cluster

MINUTE = timedelta(minutes=1)
MIDNIGHT = NOON + timedelta(hours=12)
QUEUE, GPUS = QueueName("q"), MeterName("gpus")
SNAPSHOT = a_cluster().queue("q", gpus=4, budgets=[{"meter": "gpus", "hours": "9", "period": "Day"}]).snapshot()


class Ledger(in_memory.Ledger):
    """Says what was spent since a time: nothing at first."""

    answer = 0

    async def spent(self, since: datetime) -> dict[QueueMeter, int]:
        assert since == MIDNIGHT
        return {(QUEUE, GPUS): self.answer} if self.answer else {}


def inputs(at: datetime) -> CycleInputs:
    return CycleInputs(
        snapshot=SNAPSHOT,
        observed=ObservedAllocations.from_snapshot(SNAPSHOT, device_meters.NONE),
        tree=Tree.build(SNAPSHOT.queues.values()),
        meters=device_meters.NONE,
        now=at,
        clock=at,
        groups=(),
    )


def a_mark(at: datetime, seconds: int) -> Entry:
    line = Posting(queue=QUEUE, meter=GPUS, bucket=Bucket.SPENT, amount=seconds)
    return Entry(kind=Kind.USAGE, key=f"m-{at}", at=at, actor="test", reason="", queue=QueueName(""), postings=(line,))


async def spent_after_marks(*marks: Entry, since: datetime, says: int) -> int:
    """Return what the budget has spent in the new day. says: what the ledger knows of it once it has the marks."""
    ledger, end = Ledger(), marks[-1].at
    history = UsageHistory(ledger)
    await history.read(inputs(end), Book())
    history.mark(marks, since)
    ledger.answer = says
    await history.read(inputs(end), Book())
    balances = history.balances(inputs(end), Book())
    assert balances is not None
    (balance,) = balances.of_queue(QUEUE)
    return balance.spent


async def test_of_a_mark_over_the_beginning_of_a_period_only_what_the_ledger_splits_off_is_spent() -> None:
    mark = a_mark(MIDNIGHT + 10 * MINUTE, 40 * 60)

    assert await spent_after_marks(mark, since=MIDNIGHT - 10 * MINUTE, says=20 * 60) == 20 * 60


async def test_of_marks_within_a_period_all_is_spent_without_asking_the_ledger() -> None:
    marks = [a_mark(MIDNIGHT + 10 * MINUTE, 600), a_mark(MIDNIGHT + 20 * MINUTE, 1200)]

    assert await spent_after_marks(*marks, since=MIDNIGHT, says=7) == 1800


async def test_the_use_of_members_is_read_as_far_back_as_it_counts() -> None:
    asked: list[datetime] = []

    class Asked(in_memory.Ledger):
        async def member_usage(self, since: datetime, until: datetime, step: timedelta) -> list[MemberUsageInterval]:
            asked.extend((since, until))
            return await super().member_usage(since, until, step)

    sharing = {"within": {"by": "User", "halfLife": "24h"}}
    snapshot = a_cluster().queue("q", gpus=4, fairSharing=sharing).snapshot()
    at = replace(inputs(NOON), snapshot=snapshot, tree=Tree.build(snapshot.queues.values()))

    await UsageHistory(Asked()).read(at, Book())

    assert asked == [NOON - timedelta(days=30), NOON]
