"""Controllers of two clusters share a budget in one database: they never take more than there is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from admission.api.values.reasons import HoldReason
from admission.cycle.state.leader import Leader, Ports
from admission.cycle.state.result import CycleResult
from admission.ledger.sql_ledger import SqlLedger
from tests.builders import NOON, ClusterBuilder, a_cluster
from tests.unit.cycle.test_budgets import a_budget, exhausted, use_of
from tests.unit.cycle.test_cycle import Cluster, hold_of, run

CLUSTERS = ("east", "west")
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class Site:
    """One cluster with its controller; its Jobs want two GPU-hours each."""

    def __init__(self, ledger: SqlLedger, name: str, *, jobs: int) -> None:
        self.cluster = Cluster(_hardware(jobs))
        self.ledger = ledger
        ports = Ports(
            view=self.cluster,
            pods=self.cluster,
            claims=self.cluster,
            workloads=self.cluster,
            reports=self.cluster,
            ledger=ledger,
        )
        self.leader = Leader.build(ports=ports, actor=name, epoch=1)

    @property
    def running(self) -> int:
        return sum(pod.phase == "Running" for pod in self.cluster.snapshot().pods.values())

    def finish(self) -> None:
        running = [pod for pod in self.cluster.snapshot().pods.values() if pod.phase == "Running"]
        self.cluster.finish(running)

    async def run(self, minutes: float) -> CycleResult:
        result = await run(self.leader, NOON + minutes * MINUTE)
        self.cluster.schedule(self.leader.mirror.book)
        return result


def _hardware(jobs: int) -> ClusterBuilder:
    budget = a_budget("5", scope="Global")
    builder = a_cluster().node("a", gpus=8).queue("q", gpus=8, budgets=[budget], defaultRuntime="1h")
    for number in range(jobs):
        builder.job(f"two-{number}", queue="q", pods=2)
    return builder


@pytest.fixture
async def ledgers(url: str) -> AsyncIterator[list[SqlLedger]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(SqlLedger.open(url, name)) for name in CLUSTERS]


async def test_two_clusters_see_the_rest_of_a_shared_budget_and_take_no_more(ledgers: list[SqlLedger]) -> None:
    east, west = (Site(ledger, name, jobs=2) for ledger, name in zip(ledgers, CLUSTERS, strict=True))

    first = await east.run(0)
    second = await west.run(0)

    assert (len(first.granted), len(second.granted)) == (2, 0)
    assert hold_of(second, "two-0").reason is HoldReason.BUDGET_EXHAUSTED
    assert [use_of(result).left for result in (first, second)] == [3600, 3600]
    assert use_of(second).elsewhere == 4 * 3600

    # The first two end after half of the time that was promised to them.
    await east.run(1)
    east.finish()
    await east.run(31)
    third = await west.run(33)
    assert len(third.granted) == 1
    assert use_of(third).elsewhere == 4 * 30 * 60
    assert use_of(await east.run(34)).left == 5 * 3600 - 4 * 30 * 60 - 2 * 3600


async def test_concurrent_grants_of_two_clusters_are_arbitrated_by_the_database(ledgers: list[SqlLedger]) -> None:
    for attempt in range(5):
        sites = [Site(ledger, name, jobs=3) for ledger, name in zip(ledgers, CLUSTERS, strict=True)]

        await asyncio.gather(*(site.run(attempt * 24 * 60) for site in sites))
        for minutes in (1, 2):
            await asyncio.gather(*(site.run(attempt * 24 * 60 + minutes) for site in sites))

        # Two of six Jobs fit into five GPU-hours.
        assert sum(site.running for site in sites) == 4
        for site in sites:
            site.finish()
            await site.run(attempt * 24 * 60 + 3)
            site.cluster._pods.clear()
            site.cluster._claims.clear()
            await site.run(attempt * 24 * 60 + 4)


async def test_gangs_running_into_a_new_period_are_known_to_the_other_cluster_before_its_first_grant(
    ledgers: list[SqlLedger],
) -> None:
    """East's controller is not there at midnight: what its gang is promised of the new day it has said before."""
    east, west = Site(ledgers[0], "east", jobs=2), Site(ledgers[1], "west", jobs=2)
    late = 12 * 60 - 15
    granted = [*(await east.run(late)).granted, *(await east.run(late + 1)).granted]
    assert len(granted) == 2, "each needs half a GPU-hour of this day"

    # Of the five GPU-hours of the new day three are promised to them.
    first = await west.run(12 * 60)

    assert use_of(first).elsewhere == 4 * 45 * 60
    assert len(first.granted) == 1
    assert hold_of(first, "two-1").reason is HoldReason.BUDGET_EXHAUSTED
    assert use_of(await east.run(12 * 60 + 1)).left == 0


async def test_a_gang_that_ends_before_the_new_period_gives_its_share_back(ledgers: list[SqlLedger]) -> None:
    east, west = Site(ledgers[0], "east", jobs=2), Site(ledgers[1], "west", jobs=2)
    late = 12 * 60 - 15
    for minutes in (late, late + 1):
        await east.run(minutes)
    east.finish()
    await east.run(late + 5)

    first = await west.run(12 * 60)

    assert use_of(first).elsewhere == 0
    assert len(first.granted) == 2


async def test_a_cluster_whose_gangs_run_over_their_time_leaves_nothing_to_the_other(ledgers: list[SqlLedger]) -> None:
    east, west = Site(ledgers[0], "east", jobs=1), Site(ledgers[1], "west", jobs=1)
    result = await east.run(0)
    for minutes in (1, 61, 121, 181):
        result = await east.run(minutes)
    assert use_of(result).left == 5 * 3600 - 2 * 180 * 60
    assert exhausted(result) == ("False", "BudgetExhausted")

    held = await west.run(182)

    assert hold_of(held, "two-0").reason is HoldReason.BUDGET_EXHAUSTED
    assert west.running == 0
