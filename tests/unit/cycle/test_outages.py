"""The database is away at every possible call, or answers too late: nothing is granted, and the books become exact."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from admission.accounting import books
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Bucket, Entry, Kind
from admission.api.values.names import QueueName
from admission.api.values.reasons import HoldReason
from admission.cycle.state import ledger_mirror
from admission.cycle.state.leader import Leader
from admission.errors import DeposedError, LedgerUnavailableError
from admission.lifecycle import ledger_clock
from admission.simulation import in_memory
from tests.builders import NOON, a_cluster
from tests.unit.cycle.test_cycle import GPUS, Cluster, Ledger, a_leader, gang, kinds, run

Q = QueueName("q")
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class Failing(Ledger):
    """Fails from its n-th call on, for so many calls. carried_out: only the answers are lost."""

    def __init__(self, first: int = 10**6, calls: int = 10**6, *, carried_out: bool = False) -> None:
        super().__init__()
        self.failing = range(first, first + calls)
        self.carried_out = carried_out
        self.calls = 0

    async def load(self) -> Book:
        book: Book = await self._called(super().load)
        return book

    async def post_all(self, entries: Any, **options: Any) -> Any:
        return await self._called(lambda: in_memory.Ledger.post_all(self, entries, **options))

    async def _called(self, call: Callable[[], Awaitable[Any]]) -> Any:
        self.calls += 1
        if self.calls - 1 not in self.failing:
            return await call()
        if self.carried_out:
            await call()
        raise LedgerUnavailableError("away")


def spent(ledger: Ledger) -> int:
    return ledger.book.accrued(NOON + HOUR).get((Q, GPUS), 0)


def a_town() -> Cluster:
    return Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q", pods=2))


async def a_granted_gang() -> tuple[Cluster, Ledger, Leader]:
    cluster, ledger = a_town(), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    return cluster, ledger, leader


async def test_a_cycle_that_could_not_read_the_book_grants_nothing_though_the_database_is_back_meanwhile() -> None:
    cluster, ledger = a_town(), Failing(calls=1, first=0)

    result = await run(a_leader(cluster, ledger))

    hold = gang(result, "train").hold
    assert hold is not None
    assert hold.reason is HoldReason.LEDGER_UNAVAILABLE
    assert kinds(ledger) == []


async def test_entries_of_an_outage_are_posted_in_order_with_their_true_times() -> None:
    cluster, ledger, leader = await a_granted_gang()
    ledger.away = True
    started = cluster.schedule(leader.mirror.book)
    await run(leader, NOON + MINUTE)
    cluster.finish(started)
    result = await run(leader, NOON + 11 * MINUTE)
    assert result.unposted == 2
    assert [kind for kind in kinds(ledger) if kind is not Kind.RESERVE] == []

    ledger.away = False
    await run(leader, NOON + 40 * MINUTE)

    times = {entry.kind: entry.at for entry in ledger.entries}
    assert (times[Kind.SETTLE], times[Kind.RELEASE]) == (NOON + MINUTE, NOON + 11 * MINUTE)
    assert spent(ledger) == 2 * 600


async def test_an_outage_over_two_hours_is_marked_at_the_last_full_hour_before_each_cycle() -> None:
    cluster, ledger, leader = await a_granted_gang()
    cluster.schedule(leader.mirror.book)
    await run(leader, NOON + MINUTE)
    ledger.away = True
    for minutes in (59, 61, 119, 121, 150):
        await run(leader, NOON + minutes * MINUTE)
    ledger.away = False
    await run(leader, NOON + 151 * MINUTE)

    marks = [entry for entry in ledger.entries if entry.kind is Kind.USAGE]
    assert [mark.at for mark in marks] == [NOON + HOUR, NOON + 2 * HOUR]
    assert [_seconds(mark) for mark in marks] == [2 * 59 * 60, 2 * 3600]


async def test_while_the_database_is_away_a_gang_that_does_not_start_is_evicted_and_booked_later() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="1m").job("train", queue="q")
    cluster, ledger = Cluster(builder), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    ledger.away = True
    await run(leader, NOON + 2 * MINUTE)
    assert not cluster.snapshot().pods
    ledger.away = False
    await run(leader, NOON + 9 * MINUTE)

    (evicted,) = [entry for entry in ledger.entries if entry.kind is Kind.EVICT]
    assert evicted.at == NOON + 2 * MINUTE


async def test_reports_go_on_while_the_database_is_away() -> None:
    cluster, ledger, leader = await a_granted_gang()
    ledger.away = True
    cluster.schedule(leader.mirror.book)
    result = await run(leader, NOON + MINUTE)

    (queue,) = result.queues
    assert (queue.meters[GPUS].used, queue.meters[GPUS].reserved) == (2, 0)


async def test_a_leader_that_starts_while_the_database_is_down_leaves_statuses_as_they_were() -> None:
    cluster, ledger, leader = await a_granted_gang()
    cluster.schedule(leader.mirror.book)
    await run(leader, NOON + MINUTE)
    before = dict(cluster.gangs), dict(cluster.queues)

    ledger.away = True
    successor = a_leader(cluster, ledger)
    result = await run(successor, NOON + 2 * MINUTE)
    assert (dict(cluster.gangs), dict(cluster.queues)) == before
    assert result.next_try == NOON + 2 * MINUTE + timedelta(seconds=5)

    cluster.finish(tuple(cluster.snapshot().pods.values()))
    ledger.away = False
    await run(successor, NOON + 3 * MINUTE)
    assert kinds(ledger) == [Kind.RESERVE, Kind.SETTLE, Kind.RELEASE]


async def test_too_many_entries_are_dropped_and_derived_from_the_cluster_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_mirror, "MOST_UNPOSTED", 0)
    cluster, ledger, leader = await a_granted_gang()
    ledger.away = True
    cluster.schedule(leader.mirror.book)
    assert (await run(leader, NOON + MINUTE)).unposted == 0
    assert not leader.mirror.is_complete

    monkeypatch.undo()
    ledger.away = False
    await run(leader, NOON + 5 * MINUTE)
    (settled,) = [entry for entry in ledger.entries if entry.kind is Kind.SETTLE]
    assert settled.at == NOON + 5 * MINUTE


async def test_a_deposed_leader_posts_none_of_its_waiting_entries() -> None:
    cluster, ledger, leader = await a_granted_gang()
    ledger.away = True
    cluster.schedule(leader.mirror.book)
    await run(leader, NOON + MINUTE)
    ledger.away = False
    await ledger.fence(2)

    with pytest.raises(DeposedError):
        await run(leader, NOON + 2 * MINUTE)
    assert kinds(ledger) == [Kind.RESERVE]


async def test_entries_of_another_writer_are_noticed_and_the_ledger_is_read_again() -> None:
    cluster = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("one", queue="q").job("two", queue="q"))
    ledger = Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    (placement, _) = ledger.book.placements.values()
    foreign = books.evict(placement, at=NOON + MINUTE, actor="muster ledger reconcile", reason="by hand")
    await ledger.post_all([foreign], epoch=1)
    assert leader.mirror.book != ledger.book

    cluster.schedule(leader.mirror.book)
    await run(leader, NOON + 2 * MINUTE)
    await run(leader, NOON + 3 * MINUTE)

    assert leader.mirror.book == ledger.book == Book.replay(ledger.entries)


async def test_an_idle_leader_notices_what_an_operator_has_given_back() -> None:
    _, ledger, leader = await a_granted_gang()
    (placement,) = ledger.book.placements.values()
    await ledger.post_all([books.evict(placement, at=NOON, actor="muster ledger reconcile", reason="by hand")], epoch=1)

    await run(leader, NOON)

    assert leader.mirror.book == ledger.book


async def test_a_clock_that_goes_back_is_not_followed() -> None:
    cluster, ledger, leader = await a_granted_gang()
    cluster.schedule(leader.mirror.book)

    result = await run(leader, NOON - HOUR)

    assert result.behind == HOUR + ledger_clock.RESOLUTION
    assert [entry.at for entry in ledger.entries if entry.kind is Kind.SETTLE] == [NOON + ledger_clock.RESOLUTION]
    assert (await run(leader, NOON - timedelta(seconds=2))).behind == timedelta(0)


async def test_a_quota_that_changes_there_and_back_and_there_again_is_booked_while_time_stands_still() -> None:
    """The clock is behind the books, so that every change has the same time."""
    cluster, ledger, leader = await a_granted_gang()

    for nominal in (5, 6, 5, 6):
        cluster._rest = a_cluster().node("a", gpus=4).queue("q", gpus=nominal).snapshot()
        await run(leader, NOON - MINUTE)
        assert ledger.book.nominal(QueueName("q"), GPUS) == nominal


async def test_an_idle_cluster_is_marked_once_an_hour_however_many_cycles_there_are() -> None:
    ledger = Ledger()
    leader = a_leader(Cluster(a_cluster().queue("q", gpus=4)), ledger)
    for minutes in range(0, 181, 5):
        result = await run(leader, NOON + minutes * MINUTE)
        assert result.next_try is not None
        assert result.next_try <= NOON + minutes * MINUTE + HOUR

    assert [entry.at - NOON for entry in ledger.entries if entry.kind is Kind.USAGE] == [HOUR, 2 * HOUR, 3 * HOUR]


async def test_a_gang_that_could_start_says_that_the_database_is_away() -> None:
    cluster, ledger = a_town(), Failing(2)
    leader = a_leader(cluster, ledger)

    result = await run(leader)

    hold = gang(result, "train").hold
    assert hold is not None
    assert hold.reason == HoldReason.LEDGER_UNAVAILABLE


async def test_every_gang_that_could_start_reports_ledger_unavailable_however_many_gangs_there_are() -> None:
    builder = a_cluster().node("a", gpus=100).queue("q", gpus=100)
    for number in range(70):
        builder.job(f"job-{number:02}", queue="q")
    ledger = Ledger()
    ledger.away = True

    result = await run(a_leader(Cluster(builder), ledger))

    assert {report.hold.reason for report in result.gangs if report.hold} == {HoldReason.LEDGER_UNAVAILABLE}
    assert [report.position for report in result.gangs] == list(range(1, 71))


def _seconds(mark: Entry) -> int:
    return sum(line.amount for line in mark.postings if line.bucket is Bucket.SPENT and line.meter == GPUS)
