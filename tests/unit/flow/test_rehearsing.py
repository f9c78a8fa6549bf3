"""Who stands by reads what a leader reads; the term that follows begins with it, as far as it is still so."""

import pytest

from admission.api.entries import Kind
from admission.api.gangs import Phase
from admission.errors import LedgerAwayError
from admission.flow import cycle, memory
from admission.quota import books
from admission.quota.books import Book
from tests.builders import NOON
from tests.unit.flow.fences import SECOND, Cluster, a_desk, a_gang, kinds, report


class Ledger(memory.Ledger):
    """Counts how often it is read, and can be away."""

    reads = 0
    away = False

    async def sequence(self) -> int:
        self._answer()
        return await super().sequence()

    async def load(self) -> Book:
        self._answer()
        self.reads += 1
        return await super().load()

    async def fence(self, epoch: int) -> None:
        self._answer()
        await super().fence(epoch)

    def _answer(self) -> None:
        if self.away:
            raise LedgerAwayError("away")


async def test_a_rehearsal_grants_nothing_and_the_first_cycle_of_the_term_does() -> None:
    cluster, ledger = Cluster(a_gang()), Ledger()
    desk = a_desk(cluster, ledger)

    await cycle.rehearse(desk, NOON)

    assert (cluster.calls, ledger.entries, cluster.gangs) == ([], [], {})
    assert report(await cycle.run(desk, NOON)).phase is Phase.RESERVED
    assert kinds(ledger) == [Kind.RESERVE]


async def test_books_in_which_nobody_has_written_since_are_not_read_again() -> None:
    cluster, ledger = Cluster(a_gang()), Ledger()
    await cycle.run(a_desk(cluster, ledger), NOON)
    desk, before = a_desk(cluster, ledger, epoch=2), ledger.reads

    for _ in range(3):
        await cycle.rehearse(desk, NOON)
    await cycle.run(desk, NOON + SECOND)

    assert ledger.reads == before + 1
    assert desk.known


async def test_books_in_which_the_old_leader_has_written_since_are_read_again() -> None:
    cluster, ledger = Cluster(a_gang()), Ledger()
    leader, desk = a_desk(cluster, ledger), a_desk(cluster, ledger, epoch=2)
    await cycle.run(leader, NOON)
    await cycle.rehearse(desk, NOON)
    ((uid, placement),) = desk.book.placements.items()
    entry = books.grant(placement.queue, next(iter(leader.meters.meters)), 1, at=NOON, actor="leader", after=10**6)
    await ledger.post_all([entry], epoch=1)

    await cycle.rehearse(desk, NOON)

    assert desk.book == ledger.book
    assert desk.book.placements[uid] is placement, "nobody has to look at it again"


async def test_books_that_cannot_be_read_when_the_term_begins_are_not_known() -> None:
    """The old leader may have written more: nothing may be released, taken back or granted by what was read ahead."""
    cluster, ledger = Cluster(a_gang()), Ledger()
    await cycle.run(a_desk(cluster, ledger), NOON)
    desk = a_desk(cluster, ledger, epoch=2)
    await cycle.rehearse(desk, NOON)
    ledger.away = True

    result = await cycle.run(desk, NOON + SECOND)

    assert not desk.known
    assert (result.granted, desk.unposted) == ((), [])


async def test_a_database_that_is_away_is_told_to_whoever_stands_by() -> None:
    ledger = Ledger()
    ledger.away = True

    with pytest.raises(LedgerAwayError):
        await cycle.rehearse(a_desk(Cluster(a_gang()), ledger), NOON)
