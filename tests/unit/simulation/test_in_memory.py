"""The memory ledger keeps the ledger's promises; what a cycle relies on is not weaker offline."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from admission.accounting import books
from admission.api.muster.ledger_entries import BudgetShare
from admission.api.values.names import MeterName, QueueName
from admission.errors import BudgetTakenError, DeposedError
from admission.simulation import in_memory

GRANT = books.grant(QueueName("team"), MeterName("gpus"), 8, at=datetime(2026, 1, 1, tzinfo=UTC), actor="test")

JANUARY = BudgetShare(
    queue=GRANT.queue,
    meter=MeterName("gpus"),
    start=datetime(2026, 1, 1, tzinfo=UTC),
    end=datetime(2026, 2, 1, tzinfo=UTC),
    limit=10,
    seconds=4,
)


async def test_an_entry_is_recorded_once() -> None:
    ledger = in_memory.Ledger()
    (first,) = await ledger.post_all([GRANT], epoch=1)
    (again,) = await ledger.post_all([GRANT], epoch=1)

    assert again == replace(first, repeated=True)
    assert (await ledger.load()).nominal(QueueName("team"), MeterName("gpus")) == 8


async def test_a_deposed_leader_cannot_write() -> None:
    ledger = in_memory.Ledger()
    await ledger.fence(2)

    with pytest.raises(DeposedError):
        await ledger.post_all([GRANT], epoch=1)
    with pytest.raises(DeposedError):
        await ledger.fence(1)


async def test_a_month_and_a_quarter_that_begin_together_are_two_budgets() -> None:
    quarter = replace(JANUARY, end=datetime(2026, 4, 1, tzinfo=UTC), seconds=7)
    shares: in_memory.Shares = {}
    east, west = (in_memory.Ledger(cluster=name, shares=shares) for name in ("east", "west"))
    await east.write_shares([JANUARY, quarter], epoch=0, now=JANUARY.start)

    stated = await west.write_shares(
        [replace(JANUARY, seconds=1), replace(quarter, seconds=2)], epoch=0, now=JANUARY.start
    )

    assert [share.seconds for share in stated] == [5, 9]


async def test_a_share_that_does_not_grow_is_taken_though_all_together_are_over_the_limit() -> None:
    """As after the limit was lowered: what is there stays, and only more of it is refused."""
    share = replace(JANUARY, limit=3)
    ledger = in_memory.Ledger()
    await ledger.write_shares([share], epoch=0, now=JANUARY.start)

    await ledger.post_all([GRANT], epoch=0, shares=[share])

    with pytest.raises(BudgetTakenError):
        await ledger.post_all([GRANT], epoch=0, shares=[replace(share, seconds=5)])


async def test_the_ledger_in_memory_ends_a_future_budget_share_that_is_no_longer_stated() -> None:
    february = replace(JANUARY, start=JANUARY.end, end=datetime(2026, 3, 1, tzinfo=UTC), seconds=7)
    shares: in_memory.Shares = {}
    east, west = (in_memory.Ledger(cluster=name, shares=shares) for name in ("east", "west"))
    await east.write_shares([JANUARY, february], epoch=0, now=JANUARY.start)

    await east.write_shares([], epoch=0, now=JANUARY.start)

    nothing = [replace(JANUARY, seconds=0), replace(february, seconds=0)]
    stated = await west.write_shares(nothing, epoch=0, now=JANUARY.start)
    assert [share.seconds for share in stated] == [4, 0]
