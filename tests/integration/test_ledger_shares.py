"""Budgets that clusters share: together they never take more than the limit, however they race."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta

import pytest

from admission.api.muster.ledger_entries import BudgetShare
from admission.api.values.names import QueueName
from admission.errors import BudgetTakenError, DeposedError
from admission.ledger.audit.verify import What
from admission.ledger.sql_ledger import SqlLedger
from tests.integration.ledgers import AT, GPU, ON_SQLITE, QUEUE, a_gang, a_grant, minutes, rows, run

LIMIT = 10**30


def a_share(seconds: int, *, queue: QueueName = QUEUE, days: int = 30, limit: int = LIMIT) -> BudgetShare:
    end = AT + timedelta(days=days)
    return BudgetShare(queue=queue, meter=GPU, start=AT, end=end, limit=limit, seconds=seconds)


@pytest.fixture
async def clusters(url: str) -> AsyncIterator[tuple[SqlLedger, SqlLedger]]:
    async with SqlLedger.open(url, "east") as east, SqlLedger.open(url, "west") as west:
        yield east, west


async def taken(ledger: SqlLedger, share: BudgetShare) -> int:
    """Return what all clusters have taken of a budget, by stating a share once more."""
    (total,) = await ledger.write_shares([share], epoch=1, now=AT)
    return total.seconds


async def test_a_budget_share_taken_by_a_cluster_is_gone_for_the_other(clusters: tuple[SqlLedger, SqlLedger]) -> None:
    east, west = clusters
    await east.post_all([a_gang()], epoch=1, shares=[a_share(LIMIT - 5)])

    with pytest.raises(BudgetTakenError, match="budget of gpu of queue team-a") as raised:
        await west.post_all([a_gang("two")], epoch=1, shares=[a_share(6)])

    assert raised.value.share == a_share(6)
    assert (await west.load()).placements == {}
    await west.post_all([a_gang("two")], epoch=1, shares=[a_share(5)])
    assert await taken(west, a_share(5)) == LIMIT


async def test_a_share_that_shrinks_is_never_refused(clusters: tuple[SqlLedger, SqlLedger]) -> None:
    east, west = clusters
    await east.write_shares([a_share(2 * LIMIT)], epoch=1, now=AT)

    await east.post_all([], epoch=1, shares=[a_share(LIMIT)])

    assert await taken(west, a_share(0)) == LIMIT


async def test_a_share_is_the_whole_of_what_a_cluster_has_taken(clusters: tuple[SqlLedger, SqlLedger]) -> None:
    east, _ = clusters
    for seconds in (3, 7, 7, 2):
        await east.post_all([], epoch=1, shares=[a_share(seconds)])

    assert await taken(east, a_share(2)) == 2


async def test_stated_shares_may_exceed_the_limit_and_say_what_all_have_taken(
    clusters: tuple[SqlLedger, SqlLedger],
) -> None:
    east, west = clusters
    month, other = a_share(LIMIT), a_share(3, queue=QueueName("team-b"))
    await east.write_shares([other, month], epoch=1, now=AT)

    stated = await west.write_shares([month, other], epoch=1, now=AT)

    assert stated == [replace(month, seconds=2 * LIMIT), replace(other, seconds=6)]


async def test_budgets_that_begin_together_are_two(clusters: tuple[SqlLedger, SqlLedger]) -> None:
    east, _ = clusters
    month, quarter = a_share(5), a_share(7, days=90)

    assert await east.write_shares([month, quarter], epoch=1, now=AT) == [month, quarter]


async def test_a_lowered_limit_of_a_shared_budget_binds_the_next_share(clusters: tuple[SqlLedger, SqlLedger]) -> None:
    east, west = clusters
    await east.post_all([], epoch=1, shares=[a_share(8, limit=10)])

    with pytest.raises(BudgetTakenError):
        await west.post_all([], epoch=1, shares=[a_share(1, limit=8)])


async def test_a_deposed_leader_takes_nothing(clusters: tuple[SqlLedger, SqlLedger]) -> None:
    east, _ = clusters
    await east.fence(2)

    with pytest.raises(DeposedError):
        await east.post_all([], epoch=1, shares=[a_share(1)])
    with pytest.raises(DeposedError):
        await east.write_shares([a_share(1)], epoch=1, now=AT)

    assert await east.write_shares([a_share(0)], epoch=2, now=AT) == [a_share(0)]


async def test_a_refused_budget_share_keeps_none_of_the_other_shares_of_its_post(
    clusters: tuple[SqlLedger, SqlLedger],
) -> None:
    east, _ = clusters
    small = a_share(2, queue=QueueName("team-b"), limit=1)

    with pytest.raises(BudgetTakenError) as raised:
        await east.post_all([a_grant()], epoch=1, shares=[a_share(1), small])

    assert raised.value.share == small
    assert await taken(east, a_share(0)) == 0
    assert (await east.verify()).transactions == 0


@pytest.mark.timeout(60)
async def test_clusters_that_race_never_take_more_than_the_limit(url: str) -> None:
    """Each takes one more in every round, until it is refused; in the end the budget is spent to the last second."""
    limit, names = 30, ("east", "west", "north")
    async with AsyncExitStack() as stack:
        ledgers = [await stack.enter_async_context(SqlLedger.open(url, name)) for name in names]

        got = await asyncio.gather(*(race(ledger, limit) for ledger in ledgers))

        assert sum(got) == limit
        assert await taken(ledgers[0], a_share(got[0], limit=limit)) == limit
        for ledger, mine in zip(ledgers, got, strict=True):
            verification = await ledger.verify()
            assert verification.ok, verification.finding
            assert verification.transactions == mine
    shares = {str(name): int(str(mine)) for name, mine in rows(url, "SELECT cluster, seconds FROM budget_shares")}
    assert [shares.get(name, 0) for name in names] == got


async def race(ledger: SqlLedger, limit: int) -> int:
    for mine in range(limit + 1):
        try:
            gang = a_gang(f"gang-{mine}", at=minutes(mine))
            await ledger.post_all([gang], epoch=1, shares=[a_share(mine + 1, limit=limit)])
        except BudgetTakenError:
            return mine
    raise AssertionError("more than the limit")


@ON_SQLITE
async def test_a_share_of_a_budget_that_is_not_there_is_found(url: str) -> None:
    """SQLite heeds a foreign key only where it is asked to."""
    times = "'2026-03-01T00:00:00.000000+00:00', '2026-04-01T00:00:00.000000+00:00'"
    run(url, f"INSERT INTO budget_shares VALUES ('east', 'team-a', 'gpu', {times}, '6')")  # noqa: S608 - our own text

    async with SqlLedger.open(url, "east") as ledger:
        finding = (await ledger.verify()).finding

    assert finding is not None
    assert "a budget of gpu of queue team-a from 2026-03-01 that is not there" in finding.detail


async def test_a_sum_that_is_not_that_of_the_shares_is_found(url: str) -> None:
    async with SqlLedger.open(url, "east") as east:
        await east.write_shares([a_share(7)], epoch=1, now=AT)
        run(url, "UPDATE shared_budgets SET taken = '6'")

        finding = (await east.verify()).finding

    assert finding is not None
    assert finding.what is What.BALANCE
    assert "6 meter-seconds are taken, the clusters' shares sum to 7" in finding.detail


async def test_the_ledger_ends_a_future_budget_share_that_is_no_longer_stated(
    clusters: tuple[SqlLedger, SqlLedger],
) -> None:
    """The cluster has no such budget any more; what it has spent of this period stays spent."""
    east, west = clusters
    month, ahead = a_share(5), replace(a_share(7), start=AT + timedelta(days=30), end=AT + timedelta(days=60))
    for ledger in clusters:
        await ledger.write_shares([month, ahead], epoch=1, now=AT)

    await east.write_shares([], epoch=1, now=AT)

    nothing = [replace(month, seconds=0), replace(ahead, seconds=0)]
    assert [share.seconds for share in await west.write_shares(nothing, epoch=1, now=AT)] == [5, 0]
    await west.write_shares([month, ahead], epoch=1, now=AT)
    await east.write_shares([month], epoch=1, now=ahead.start)
    await west.write_shares([month], epoch=1, now=ahead.start)
    assert (await east.write_shares([replace(ahead, seconds=0)], epoch=1, now=ahead.start))[0].seconds == 7
    verification = await east.verify()
    assert verification.ok, verification.finding
