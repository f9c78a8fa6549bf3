"""Who stands by reads what a leader reads; the term that follows begins with it, as far as it is still so."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from admission.accounting import books
from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Book
from admission.api.muster.gangs import Phase
from admission.api.muster.ledger_entries import Entry, Kind
from admission.cycle import cycle
from admission.cycle.state import ledger_mirror
from admission.errors import LedgerUnavailableError
from admission.simulation import in_memory
from tests.builders import NOON
from tests.unit.cycle.fences import SECOND, Cluster, a_gang, a_leader, cycles, kinds, report

HOUR = timedelta(hours=1)


class Ledger(in_memory.Ledger):
    """Counts how often it is read, and can be away."""

    reads = 0
    away = False

    async def sequence(self) -> int:
        self._answer()
        return await super().sequence()

    async def since(self, sequence: int, *, most: int) -> list[Entry] | None:
        self._answer()
        return await super().since(sequence, most=most)

    async def load(self) -> Book:
        self._answer()
        self.reads += 1
        return await super().load()

    async def fence(self, epoch: int) -> None:
        self._answer()
        await super().fence(epoch)

    def _answer(self) -> None:
        if self.away:
            raise LedgerUnavailableError("away")


async def test_a_preload_grants_nothing_and_the_first_cycle_of_the_term_grants() -> None:
    cluster, ledger = Cluster(a_gang()), Ledger()
    leader = a_leader(cluster, ledger)

    await cycle.preload(leader, NOON)

    assert (cluster.calls, ledger.entries, cluster.gangs) == ([], [], {})
    assert report(await cycle.run(leader, NOON)).phase is Phase.RESERVED
    assert kinds(ledger) == [Kind.RESERVE]


async def test_a_preloaded_ledger_without_new_entries_is_not_read_again() -> None:
    cluster, ledger = Cluster(a_gang()), Ledger()
    await cycle.run(a_leader(cluster, ledger), NOON)
    leader, before = a_leader(cluster, ledger, epoch=2), ledger.reads

    for _ in range(3):
        await cycle.preload(leader, NOON)
    await cycle.run(leader, NOON + SECOND)

    assert ledger.reads == before + 1
    assert leader.mirror.is_complete


async def test_entries_of_the_old_leader_since_the_preload_are_added_to_the_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, ledger = Cluster(a_gang()), Ledger()
    old, leader = a_leader(cluster, ledger), a_leader(cluster, ledger, epoch=2)
    await cycle.run(old, NOON)
    await cycle.preload(leader, NOON)
    ((uid, placement),) = leader.mirror.book.placements.items()
    meter = next(iter(cluster.snapshot().meters))
    entry = books.grant(placement.queue, meter, 1, at=NOON, actor="leader", after=10**6)
    await ledger.post_all([entry], epoch=1)

    reads = ledger.reads

    await cycle.preload(leader, NOON)

    assert leader.mirror.book == ledger.book
    assert leader.mirror.book.placements[uid] is placement, "nobody has to look at it again"
    assert ledger.reads == reads

    monkeypatch.setattr(ledger_mirror, "MOST_FOLLOWED", 0)
    await ledger.post_all([replace(entry, key="another", at=NOON + SECOND)], epoch=1)
    await cycle.preload(leader, NOON)

    assert leader.mirror.book == ledger.book
    assert leader.mirror.book.placements[uid] is placement, "nor where all was read"
    assert ledger.reads == reads + 1


async def test_a_preloaded_ledger_copy_that_the_new_entries_do_not_follow_is_read_again() -> None:
    """They were restored from a backup, say: what was written since does not follow from what was read."""
    cluster, ledger = Cluster(a_gang()), Ledger()
    await cycle.run(a_leader(cluster, ledger), NOON)
    leader, reads = a_leader(cluster, ledger, epoch=2), ledger.reads
    await cycle.preload(leader, NOON)
    ((uid, placement),) = leader.mirror.book.placements.items()
    removed = books.release(
        placement, pods=placement.seats, claims=placement.holdings, at=NOON, actor="a", reason="gone"
    )
    assert removed is not None
    await ledger.post_all([removed], epoch=1)
    leader.mirror._book = replace(leader.mirror.book, placements={uid: replace(placement, seats={})})

    await cycle.preload(leader, NOON)

    assert ledger.reads == reads + 2
    assert leader.mirror.book == ledger.book


async def test_a_standby_knows_which_gangs_cannot_start_before_its_term() -> None:
    cluster, ledger = Cluster(a_gang(pods=5)), Ledger()
    leader = a_leader(cluster, ledger)

    await cycle.preload(leader, NOON)

    assert leader.scheduling.plans._proofs
    assert not leader.statuses.decisions
    assert not leader.backfill._heads, "nobody is promised anything before the term begins"
    assert report(await cycle.run(leader, NOON)).phase is Phase.PENDING


async def test_books_that_cannot_be_read_when_the_term_begins_are_not_known() -> None:
    """The old leader may have written more: nothing may be released, taken back or granted by what was read ahead."""
    cluster, ledger = Cluster(a_gang()), Ledger()
    await cycle.run(a_leader(cluster, ledger), NOON)
    leader = a_leader(cluster, ledger, epoch=2)
    await cycle.preload(leader, NOON)
    ledger.away = True

    result = await cycle.run(leader, NOON + SECOND)

    assert not leader.mirror.is_complete
    assert (result.granted, leader.mirror.unposted) == ((), ())


async def test_preloading_a_standby_raises_while_the_database_is_down() -> None:
    ledger = Ledger()
    ledger.away = True

    with pytest.raises(LedgerUnavailableError):
        await cycle.preload(a_leader(Cluster(a_gang()), ledger), NOON)


class Marking(in_memory.Ledger):
    """Its leader writes a mark just before somebody else asks what was spent, who knows the book of before."""

    marks = True

    async def spent(self, since: datetime) -> dict[QueueMeter, int]:
        mark = books.usage(self.book, at=NOON + HOUR, actor="leader") if self.marks else None
        if mark is not None:
            await self.post_all([mark], epoch=1)
        return await super().spent(since)


async def test_a_standby_does_not_count_marked_usage_twice() -> None:
    budget = {"meter": "gpus", "hours": "100", "period": "Day"}
    cluster, ledger = Cluster(a_gang(budgets=[budget], defaultRuntime="2h")), Marking()
    ledger.marks = False
    await cycles(a_leader(cluster, ledger), 2)
    cluster.schedule(ledger.book)
    await cycle.run(a_leader(cluster, ledger), NOON + SECOND)
    earlier = books.usage(ledger.book, at=NOON + HOUR / 2, actor="leader")
    assert earlier is not None
    await ledger.post_all([earlier], epoch=1)
    ledger.marks = True
    leader = a_leader(cluster, ledger, epoch=2)

    for _ in range(3):
        await cycle.preload(leader, NOON + HOUR)

    assert leader.mirror._usage._spent
    assert any(leader.mirror._usage._spent.values())
    assert leader.mirror._usage._spent == {start: await ledger.spent(start) for start in leader.mirror._usage._spent}
