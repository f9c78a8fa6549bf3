"""Entries that somebody else has written: the leader's book is the ledger's, also when it has nothing to post."""

from datetime import timedelta

from admission.accounting import books
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Kind
from admission.api.values.names import MeterName, QueueName
from admission.errors import LedgerUnavailableError
from tests.builders import NOON, a_cluster
from tests.unit.cycle.test_cycle import Cluster, Ledger, a_leader, run


class Counting(Ledger):
    """Counts how often its book is read."""

    loads = 0

    async def load(self) -> Book:
        self.loads += 1
        return await super().load()

    async def sequence(self) -> int:
        if self.away:
            raise LedgerUnavailableError("away")
        return await super().sequence()


async def test_an_idle_leader_notices_entries_of_another_writer() -> None:
    ledger = Counting()
    leader = a_leader(Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4)), ledger)
    await run(leader)
    foreign = books.grant(QueueName("gone"), MeterName("gpus"), 3, at=NOON, actor="an operator")
    await ledger.post_all([foreign], epoch=1)

    await run(leader, NOON + timedelta(seconds=1))

    assert leader.mirror.book == ledger.book
    assert [entry.kind for entry in ledger.entries if entry.queue == "gone"] == [Kind.GRANT, Kind.GRANT]
    assert leader.mirror.book.nominal(QueueName("gone"), MeterName("gpus")) == 0, "the leader has acted upon it"


async def test_the_ledger_is_not_read_again_while_no_entry_is_added() -> None:
    ledger = Counting()
    leader = a_leader(Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("j", queue="q")), ledger)
    for second in range(5):
        await run(leader, NOON + timedelta(seconds=second))

    assert ledger.loads == 1


async def test_a_database_that_is_away_is_noticed_before_anything_is_decided() -> None:
    ledger = Counting()
    leader = a_leader(Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4)), ledger)
    await run(leader)
    ledger.away = True

    await run(leader, NOON + timedelta(seconds=1))

    assert leader.mirror.is_down
    assert not leader.mirror.is_current
