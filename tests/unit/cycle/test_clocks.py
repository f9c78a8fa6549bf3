"""The clock is wrong and is set right: the time of the books stands still meanwhile, and back-offs do not."""

from dataclasses import replace
from datetime import timedelta

import pytest

from admission.api.muster import meters
from admission.api.muster.ledger_entries import Kind
from admission.cycle import cycle
from admission.cycle.state.leader import Leader
from admission.cycle.steps import report as cycle_report
from admission.errors import LedgerUnavailableError
from admission.simulation import in_memory
from tests.builders import CLASS, NOON, a_cluster
from tests.unit.cycle.fences import MINUTE, SECOND, Cluster, a_leader, kinds, report
from tests.unit.cycle.test_edges import a_hopeless_gang

HOUR = timedelta(hours=1)
TRIES = [Kind.RESERVE, Kind.EVICT]


class Away(in_memory.Ledger):
    async def sequence(self) -> int:
        raise LedgerUnavailableError("away")


async def taken_back_ahead_of_time() -> tuple[Cluster, in_memory.Ledger, Leader]:
    """Have a gang back off for ten minutes while the clock is an hour ahead."""
    cluster, ledger = a_hopeless_gang(), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    for seconds in range(20):
        await cycle.run(leader, NOON + HOUR + seconds * SECOND)
    assert kinds(ledger) == TRIES * 4
    return cluster, ledger, leader


@pytest.mark.parametrize("succeeds", [False, True], ids=["the same leader", "its successor"])
async def test_a_clock_that_was_ahead_holds_no_gang_for_longer_than_the_back_off(*, succeeds: bool) -> None:
    cluster, ledger, leader = await taken_back_ahead_of_time()
    if succeeds:
        leader = a_leader(cluster, ledger, epoch=2)

    result = await cycle.run(leader, NOON)
    assert result.behind >= HOUR
    assert result.next_try == NOON + 10 * MINUTE
    held = report(await cycle.run(leader, NOON + 9 * MINUTE)).hold
    assert held is not None
    assert held.details["nextTry"] == "2026-11-21T12:10:00Z"
    assert kinds(ledger) == TRIES * 4

    for seconds in range(3):
        await cycle.run(leader, NOON + 10 * MINUTE + seconds * SECOND)
    assert kinds(ledger)[:10] == TRIES * 5


async def test_back_offs_double_while_the_clock_is_behind_the_books() -> None:
    _, ledger, leader = await taken_back_ahead_of_time()
    await cycle.run(leader, NOON)

    for seconds in range(3):
        await cycle.run(leader, NOON + 10 * MINUTE + seconds * SECOND)

    next_try = report(await cycle.run(leader, NOON + 11 * MINUTE)).next_try
    assert next_try is not None
    assert NOON + 30 * MINUTE <= next_try <= NOON + 30 * MINUTE + 3 * SECOND
    assert [entry.at for entry in ledger.entries] == sorted(entry.at for entry in ledger.entries)


async def test_a_database_that_is_away_is_asked_again_by_the_clock_and_not_by_the_books() -> None:
    _, ledger, leader = await taken_back_ahead_of_time()
    leader.mirror._ledger = leader.mirror._usage._ledger = Away(ledger.book)

    result = await cycle.run(leader, NOON)

    assert result.next_try == NOON + cycle_report.DATABASE_RETRY


async def test_a_cycle_is_due_at_once_while_some_devices_are_not_priced_yet() -> None:
    """Of each cycle's time only so much is given to that."""
    builder = a_cluster()
    for at in range(12):
        builder.node(f"n{at}", gpus=128)
    cluster = Cluster(builder)
    price = {"cel": f"device.attributes['{CLASS}'].nosuch"}
    source = {"deviceClasses": [CLASS], "expression": price}
    dear = meters.decode({"metadata": {"name": "dear", "generation": 1}, "spec": {"sources": [source]}})
    cluster._rest = replace(cluster._rest, meters={**cluster._rest.meters, dear.name: dear})
    leader = a_leader(cluster, in_memory.Ledger())

    first, second = [(await cycle.run(leader, NOON + at * SECOND)).next_try for at in range(2)]

    assert first == NOON
    assert second != NOON + SECOND
