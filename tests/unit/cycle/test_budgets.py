"""Budgets in whole cycles: what is spent is read from the books, and gangs wait for what is not there."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from admission.accounting.accruals import QueueMeter
from admission.api.muster.ledger_entries import BudgetShare, Kind, Posted
from admission.api.muster.status_reports import BudgetUse, QueueReport
from admission.api.values import names
from admission.api.values.reasons import HoldReason
from admission.cycle.state.result import CycleResult
from admission.errors import LedgerUnavailableError
from admission.simulation import in_memory
from tests.builders import NOON, ClusterBuilder, a_cluster
from tests.unit.cycle.test_cycle import Cluster, Ledger, a_leader, gang, hold_of, kinds, run

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
MIDNIGHT = NOON + 12 * HOUR


def a_budget(hours: str, **more: Any) -> dict[str, Any]:
    return {"meter": "gpus", "hours": hours, "period": "Day", **more}


def a_queue(*budgets: dict[str, Any], **more: Any) -> ClusterBuilder:
    return a_cluster().node("a", gpus=8).queue("q", gpus=8, budgets=list(budgets), **more)


def use_of(result: CycleResult, name: str = "q") -> BudgetUse:
    (use,) = report_of(result, name).budgets
    return use


def report_of(result: CycleResult, name: str = "q") -> QueueReport:
    (report,) = [report for report in result.queues if report.name == name]
    return report


def exhausted(result: CycleResult, name: str = "q") -> tuple[str, str]:
    (condition,) = [c for c in report_of(result, name).conditions if c.type == "BudgetLeft"]
    return condition.status, condition.reason


async def test_a_gang_that_the_budget_cannot_pay_for_waits_until_the_period_ends() -> None:
    cluster, ledger = Cluster(a_queue(a_budget("3"), defaultRuntime="1h").job("big", queue="q", pods=4)), Ledger()
    leader = a_leader(cluster, ledger)

    result = await run(leader)

    hold = hold_of(result, "big")
    assert hold.reason is HoldReason.BUDGET_EXHAUSTED
    assert (hold.details["left"], hold.details["needed"], hold.details["reset"]) == ("3", "4", MIDNIGHT.isoformat())
    assert kinds(ledger) == []


async def test_used_budget_is_spent_until_the_next_period_begins_with_a_full_budget() -> None:
    cluster = Cluster(a_queue(a_budget("5"), defaultRuntime="1h").job("first", queue="q", pods=4))
    ledger = Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    started = cluster.schedule(leader.mirror.book)
    result = await run(leader, NOON + MINUTE)
    assert (use_of(result).promised, use_of(result).left) == (4 * 59 * 60, 3600 + 4 * 60)
    cluster.finish(started)
    result = await run(leader, NOON + 61 * MINUTE)
    assert (use_of(result).spent, use_of(result).promised) == (4 * 3600, 0)

    add(cluster, a_cluster().job("then", queue="q", pods=2))
    assert hold_of(await run(leader, NOON + 2 * HOUR), "then").reason is HoldReason.BUDGET_EXHAUSTED
    result = await run(leader, MIDNIGHT - MINUTE)
    assert len(result.granted) == 1, "it need not pay for more than the rest of the period"
    cluster.finish(cluster.schedule(leader.mirror.book))
    result = await run(leader, MIDNIGHT)

    assert (use_of(result).spent, use_of(result).left) == (0, 5 * 3600)
    assert MIDNIGHT in [entry.at for entry in ledger.entries if entry.kind is Kind.USAGE]


async def test_a_new_leader_reads_what_was_spent() -> None:
    cluster = Cluster(a_queue(a_budget("5"), defaultRuntime="1h").job("first", queue="q", pods=4))
    ledger = Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(leader.mirror.book)
    for minutes in (1, 61, 125):
        await run(leader, NOON + minutes * MINUTE)

    result = await run(a_leader(cluster, ledger), NOON + 130 * MINUTE)

    assert use_of(result).spent == 4 * 129 * 60
    assert exhausted(result) == ("False", "BudgetExhausted")


async def test_a_budget_that_is_raised_lets_the_gang_start() -> None:
    cluster, ledger = Cluster(a_queue(a_budget("1")).job("two", queue="q", pods=2)), Ledger()
    leader = a_leader(cluster, ledger)
    assert hold_of(await run(leader), "two").reason is HoldReason.BUDGET_EXHAUSTED

    cluster._rest = a_queue(a_budget("2")).snapshot()
    result = await run(leader, NOON + MINUTE)

    assert len(result.granted) == 1
    assert use_of(result).promised == 2 * 3600


async def test_an_alternative_that_is_over_budget_holds_gangs_only_as_far_as_the_budget_reaches() -> None:
    builder = a_queue(a_budget("3")).job("one", queue="q", pods=2).job("two", queue="q", pods=2)
    cluster, ledger = Cluster(builder.job("three", queue="q")), Ledger()

    result = await run(a_leader(cluster, ledger))

    assert hold_of(result, "two").reason is HoldReason.BUDGET_EXHAUSTED
    assert len(result.granted) == 2
    assert use_of(result).left == 0


async def test_the_budget_numbers_of_a_hold_change_once_a_minute_and_make_a_single_event() -> None:
    cluster = Cluster(a_queue(a_budget("3")).job("first", queue="q", pods=2).job("then", queue="q", pods=2))
    leader = a_leader(cluster, Ledger())
    await run(leader)
    cluster.schedule(leader.mirror.book)
    told = [gang(await run(leader, NOON + seconds * SECOND), "then") for seconds in (10, 20, 50, 100)]

    assert told[0] == told[1] == told[2] != told[3]
    hold = told[3].hold
    assert hold is not None
    assert hold.details["spent"] == "0.05"
    events = [notice.kind for notice in cluster.notices if notice.reason == HoldReason.BUDGET_EXHAUSTED]
    assert events == ["Job", "Gang"]


async def test_a_budget_of_a_parent_binds_the_queues_below_it() -> None:
    builder = a_cluster().node("a", gpus=8).queue("top", gpus=8, budgets=[a_budget("1")])
    builder.queue("q", gpus=0, parent="top").job("two", queue="q", pods=2)

    result = await run(a_leader(Cluster(builder), Ledger()))

    hold = hold_of(result, "two")
    assert (hold.reason, hold.details["queue"]) == (HoldReason.BUDGET_EXHAUSTED, "top")


async def test_a_gang_is_charged_its_budget_for_its_stated_runtime() -> None:
    annotations = {"muster.dev/runtime": "30m"}
    cluster = Cluster(a_queue(a_budget("1")).job("short", queue="q", pods=2, annotations=annotations))

    result = await run(a_leader(cluster, Ledger()))

    assert use_of(result).promised == 2 * 1800


async def test_an_exhausted_budget_that_only_warns_holds_no_gang_and_makes_an_event_once() -> None:
    cluster = Cluster(a_queue(a_budget("1", onExhausted="Warn")).job("two", queue="q", pods=2))
    ledger = Ledger()
    leader = a_leader(cluster, ledger)

    result = await run(leader)
    again = await run(leader, NOON + MINUTE)

    assert len(result.granted) == 1
    assert exhausted(result) == exhausted(again) == ("False", "BudgetExhausted")
    assert [one.kind for one in cluster.notices if one.reason == HoldReason.BUDGET_EXHAUSTED] == ["Job", "Gang"]


async def test_the_spent_budget_is_known_while_the_database_is_down() -> None:
    cluster, ledger = Cluster(a_queue(a_budget("50")).job("two", queue="q", pods=2)), Ledger()
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(leader.mirror.book)
    await run(leader, NOON + MINUTE)
    ledger.away = True

    result = await run(leader, NOON + 3 * HOUR + MINUTE)

    assert use_of(result).spent == 2 * 3 * 3600


class Away(Ledger):
    """Answers nothing at all while it is away."""

    async def spent(self, since: datetime) -> dict[QueueMeter, int]:
        if self.away:
            raise LedgerUnavailableError("away")
        return await super().spent(since)

    async def sequence(self) -> int:
        if self.away:
            raise LedgerUnavailableError("away")
        return await super().sequence()

    async def fence(self, epoch: int) -> None:
        if self.away:
            raise LedgerUnavailableError("away")
        await super().fence(epoch)


async def test_a_budget_period_that_begins_while_the_database_is_down_is_reported() -> None:
    cluster, ledger = Cluster(a_queue(a_budget("10"), defaultRuntime="1h").job("two", queue="q", pods=2)), Away()
    leader = a_leader(cluster, ledger)
    await run(leader)
    cluster.schedule(leader.mirror.book)
    await run(leader, MIDNIGHT - 2 * HOUR)
    ledger.away = True

    result = await run(leader, MIDNIGHT + 6 * HOUR)
    assert (use_of(result).start, use_of(result).spent) == (MIDNIGHT, 2 * 6 * 3600)
    assert exhausted(result) == ("False", "BudgetExhausted")

    ledger.away = False
    assert use_of(await run(leader, MIDNIGHT + 6 * HOUR)) == use_of(result)
    successor = a_leader(cluster, ledger)
    assert use_of(await run(successor, MIDNIGHT + 6 * HOUR)) == use_of(result)


async def test_what_is_left_of_a_budget_created_while_the_database_is_down_is_unknown() -> None:
    cluster, ledger = Cluster(a_queue()), Away()
    leader = a_leader(cluster, ledger)
    await run(leader)
    ledger.away = True
    cluster._rest = a_queue(a_budget("1")).snapshot()

    assert exhausted(await run(leader, NOON + MINUTE)) == ("Unknown", "LedgerUnavailable")


async def test_a_window_that_ends_within_a_minute_does_not_hide_the_other_budgets() -> None:
    """What is told is as of the last full minute, when that window was still open."""
    window = {"meter": "gpus", "hours": "1", "start": "2020-01-01T00:00:00Z", "end": "2026-11-21T12:01:30Z"}
    assert (NOON + 90 * SECOND).isoformat() == "2026-11-21T12:01:30+00:00"
    cluster = Cluster(a_queue(a_budget("1"), window))
    leader = a_leader(cluster, Ledger())
    assert len(report_of(await run(leader, NOON + 80 * SECOND), "q").budgets) == 2

    result = await run(leader, NOON + 100 * SECOND)

    assert use_of(result).period == "Day"
    assert exhausted(result) == ("True", "Left")


async def test_two_clusters_never_take_more_of_a_shared_budget_than_there_is() -> None:
    shares: in_memory.Shares = {}
    leaders = []
    for name in ("east", "west"):
        cluster = Cluster(a_queue(a_budget("3", scope="Global")).job("two", queue="q", pods=2))
        ledger = in_memory.Ledger(cluster=name, shares=shares)
        leaders.append(a_leader(cluster, ledger))

    first, second = [await run(leader) for leader in leaders]

    assert len(first.granted) == 1
    assert hold_of(second, "two").details["elsewhere"] == "2"
    assert [use_of(result).left for result in (await run(leaders[0]), second)] == [3600, 3600]


@pytest.mark.parametrize("successor", [False, True])
async def test_a_cluster_whose_shared_budget_is_removed_gives_back_its_share_of_later_periods(
    *, successor: bool
) -> None:
    ledger = in_memory.Ledger(cluster="east")
    builder = a_queue(a_budget("100", scope="Global"))
    cluster = Cluster(builder.job("long", queue="q", annotations={names.RUNTIME: "20h"}))
    leader = a_leader(cluster, ledger)
    await run(leader)
    await run(leader, NOON + MINUTE)
    ahead = [key for key in ledger.shares if key[2] > NOON]
    assert [ledger.shares[key] for key in ahead] == [{"east": 8 * 3600}]

    cluster._rest = replace(cluster._rest, queues=a_queue().snapshot().queues)
    await run(a_leader(cluster, ledger) if successor else leader, NOON + 2 * MINUTE)

    assert [ledger.shares[key].get("east", 0) for key in ahead] == [0]
    assert any(mine.get("east") for key, mine in ledger.shares.items() if key not in ahead), "spent is spent"


async def test_a_cluster_states_an_empty_list_of_budget_shares_once_until_a_shared_budget_exists() -> None:
    class Counting(in_memory.Ledger):
        async def write_shares(self, shares: Sequence[BudgetShare], **options: Any) -> Any:
            stated.append(len(shares))
            return await super().write_shares(shares, **options)

    stated: list[int] = []
    cluster = Cluster(a_queue().job("two", queue="q", pods=2))
    leader = a_leader(cluster, Counting(cluster="east"))
    await run(leader)
    await run(leader, NOON + MINUTE)
    assert stated == [0]

    queues = a_queue(a_budget("100", scope="Global")).snapshot().queues
    cluster._rest = replace(cluster._rest, queues=queues)
    await run(leader, NOON + 2 * MINUTE)

    assert len(stated) == 2
    assert stated[-1] > 0


async def test_a_grant_that_another_cluster_has_overtaken_is_held_and_the_others_are_not() -> None:
    class Overtaken(Ledger):
        """Another cluster takes all, between the question what is left and the grant."""

        async def post_all(self, entries: Any, *, shares: Sequence[BudgetShare] = (), **options: Any) -> list[Posted]:
            for share in shares:
                self.shares[share.queue, share.meter, share.start, share.end]["west"] = share.limit
            return await super().post_all(entries, shares=shares, **options)

    builder = a_queue(a_budget("3", scope="Global")).queue("other", gpus=8)
    cluster = Cluster(builder.job("two", queue="q", pods=2).job("free", queue="other"))
    ledger = Overtaken()
    leader = a_leader(cluster, ledger)

    result = await run(leader)

    assert hold_of(result, "two").reason is HoldReason.BUDGET_EXHAUSTED
    assert cluster.opened == [("free-0", "a")]
    assert result.next_try == NOON + timedelta(seconds=1)
    assert hold_of(await run(leader, NOON + MINUTE), "two").details["left"] == "0"


@pytest.mark.parametrize("away", [True, False])
async def test_a_leader_that_does_not_know_what_is_spent_grants_nothing(*, away: bool) -> None:
    class Unread(Ledger):
        async def spent(self, since: Any) -> Any:
            if away:
                raise LedgerUnavailableError("away")
            return await super().spent(since)

    cluster = Cluster(a_queue(a_budget("30")).job("two", queue="q", pods=2))

    result = await run(a_leader(cluster, Unread()))

    assert bool(cluster.opened) is not away
    assert (len(result.granted) == 0) is away


def add(cluster: Cluster, builder: ClusterBuilder) -> None:
    more = builder.snapshot()
    cluster._pods |= more.pods
    cluster._claims |= more.claims
    cluster._jobs |= more.jobs


async def test_a_gang_waits_while_a_meter_that_binds_its_queue_does_not_exist() -> None:
    cluster = Cluster(a_queue(a_budget("5") | {"meter": "watts"}).job("two", queue="q", pods=2))

    result = await run(a_leader(cluster, Ledger()))

    hold = hold_of(result, "two")
    assert hold.reason is HoldReason.QUEUE_INACTIVE
    assert "Meter watts, which does not exist; create it" in hold.message
