"""What is left of budgets, who pays for whom, and what a gang is told that cannot be paid for."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admission.accounting.accruals import QueueMeter
from admission.api.muster import queues
from admission.api.muster.ledger_entries import Holding, Placement
from admission.api.values.names import GangUid, MeterName, QueueName, Uid
from admission.quota import budgets
from admission.quota.budgets import Balances, BudgetKey, Sources
from admission.quota.tree import Tree

GPU = MeterName("gpu")
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = datetime(2026, 11, 21, tzinfo=UTC)
MONTH = datetime(2026, 11, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def a_budget(hours: Any, period: str | None = "Day", **fields: Any) -> dict[str, Any]:
    return {"meter": "gpu", "hours": hours, **({"period": period} if period else {}), **fields}


def a_queue(name: str, *budgets: dict[str, Any], **spec: Any) -> queues.Queue:
    return queues.decode({"metadata": {"name": name}, "spec": {"budgets": list(budgets), **spec}})


def a_placement(queue: str, gpus: int, *, ago: timedelta, gang: str = "g") -> Placement:
    holding = Holding(claim_uid=Uid("c"), claim="ns/c", devices=(), charge={GPU: gpus})
    return Placement(
        gang_uid=GangUid(gang),
        gang=f"ns/{gang}",
        queue=QueueName(queue),
        reserved_at=NOW - ago,
        holdings={Uid("c"): holding},
    )


def at_hand(
    *declared: queues.Queue,
    spent: Mapping[str, Any] | None = None,
    booked: Mapping[datetime, Mapping[QueueMeter, int]] | None = None,
    now: datetime = NOW,
    **sources: Any,
) -> Balances:
    """Return balances where each queue has spent so many GPU-hours in every period."""
    tree = Tree.build(declared)
    used = {(QueueName(queue), GPU): round(hours * 3600) for queue, hours in (spent or {}).items()}
    booked = dict.fromkeys(budgets.starts(tree, now), used) if booked is None else booked
    return Balances(tree, now, Sources(booked=booked, **sources))


def left(balances: Balances, queue: str) -> list[float]:
    return [balance.left / 3600 for balance in balances.of_queue(QueueName(queue))]


def fits(balances: Balances, gpus: int, runtime: timedelta | None = None, queue: str = "a") -> bool:
    return balances.shortage(QueueName(queue), {GPU: gpus}, runtime) is None


PAID: dict[str, tuple[dict[str, Any], timedelta | None, int]] = {
    "nobody says how long": ({}, None, 3600),
    "the queue says the longest": ({"maxRuntime": "72h"}, None, 72 * 3600),
    "the queue says the usual": ({"maxRuntime": "72h", "defaultRuntime": "4h"}, None, 4 * 3600),
    "the gang says": ({"maxRuntime": "72h", "defaultRuntime": "4h"}, 2 * HOUR, 2 * 3600),
    "the gang says more than it may": ({"maxRuntime": "72h"}, 100 * HOUR, 72 * 3600),
    "the gang alone says": ({}, 100 * HOUR, 100 * 3600),
    "a part of a second is paid as a whole one": ({}, timedelta(milliseconds=1500), 2),
}


@pytest.mark.parametrize(("spec", "runtime", "seconds"), PAID.values(), ids=PAID)
def test_a_gang_is_charged_the_paid_seconds_of_its_runtime_and_queue(
    spec: dict[str, Any], runtime: timedelta | None, seconds: int
) -> None:
    assert budgets.paid_seconds(a_queue("a", **spec), runtime) == seconds


HOURS = {
    0: "0",
    3600: "1",
    1800: "0.5",
    9: "0.0025",
    1: "0.0003",
    2: "0.0006",
    -45000: "-12.5",
    10**30: "277777777777777777777777777.7778",
}


@pytest.mark.parametrize(("seconds", "text"), HOURS.items())
def test_hours_are_written_as_decimals(seconds: int, text: str) -> None:
    assert budgets.hours(seconds) == text


def test_no_two_numbers_of_seconds_look_the_same() -> None:
    assert len({budgets.hours(seconds) for seconds in range(-7200, 7200)}) == 14400


def test_a_gang_may_start_while_its_whole_paid_time_is_left() -> None:
    balances = at_hand(a_queue("a", a_budget(24), maxRuntime="2h"), spent={"a": 8})

    assert left(balances, "a") == [16]
    assert fits(balances, 8)
    assert not fits(balances, 9)
    assert fits(balances, 16, HOUR)


def test_usage_accrued_since_the_last_mark_counts_as_spent() -> None:
    balances = at_hand(a_queue("a", a_budget(24)), spent={"a": 8}, accrued={(QueueName("a"), GPU): 3600})

    assert left(balances, "a") == [15]


PROMISED: dict[str, tuple[timedelta, float]] = {
    "the whole when it was let in now": (timedelta(0), 8),
    "the part that is still to come": (HOUR, 6),
    "nothing when its time is over": (4 * HOUR, 0),
    "nothing more when it runs for longer": (40 * HOUR, 0),
    "the whole when the clock went back": (-HOUR, 8),
}


@pytest.mark.parametrize(("ago", "committed"), PROMISED.values(), ids=PROMISED)
def test_an_admitted_gang_commits_the_rest_of_its_runtime_to_the_budget(ago: timedelta, committed: float) -> None:
    balances = at_hand(
        a_queue("a", a_budget(24)), placements=[a_placement("a", 2, ago=ago)], runtimes={GangUid("g"): 4 * HOUR}
    )

    assert left(balances, "a") == [24 - committed]


def test_only_the_use_before_the_end_of_a_budget_period_counts() -> None:
    late = DAY + 23 * HOUR
    balances = at_hand(a_queue("a", a_budget(3), maxRuntime="72h"), now=late)

    assert fits(balances, 3)
    assert not fits(balances, 4)
    balances.charge(QueueName("a"), {GPU: 2})
    assert left(balances, "a") == [1]


def test_a_gang_from_before_is_paid_by_the_new_period_for_the_rest_of_its_time() -> None:
    balances = at_hand(
        a_queue("a", a_budget(24)),
        now=DAY,
        placements=[a_placement("a", 2, ago=13 * HOUR)],
        runtimes={GangUid("g"): 4 * HOUR},
    )

    assert left(balances, "a") == [24 - 2 * 3]


def test_the_budget_of_a_parent_queue_binds_all_queues_below() -> None:
    balances = at_hand(
        a_queue("root", a_budget(10)),
        a_queue("a", a_budget(9), parent="root"),
        a_queue("b", parent="root"),
        spent={"a": 1, "b": 2, "root": 3},
        placements=[a_placement("b", 1, ago=timedelta(0))],
    )

    assert left(balances, "root") == [3]
    assert left(balances, "a") == [8]
    assert fits(balances, 3)
    shortage = balances.shortage(QueueName("a"), {GPU: 4})
    assert shortage is not None
    assert shortage.balance.queue == "root"


def test_of_several_budget_shortages_the_one_that_lasts_longest_is_reported() -> None:
    balances = at_hand(a_queue("a", a_budget(4), a_budget(4, "Month"), a_budget(4, "Week")), spent={"a": 4})

    shortage = balances.shortage(QueueName("a"), {GPU: 1})

    assert shortage is not None
    assert shortage.balance.budget.period == "Month"


def test_budget_charged_in_this_cycle_counts_and_can_be_released() -> None:
    balances = at_hand(a_queue("root", a_budget(3)), a_queue("a", parent="root"), a_queue("b", parent="root"))

    balances.charge(QueueName("b"), {GPU: 2})
    assert not fits(balances, 2)
    balances.give_back(QueueName("b"), {GPU: 2})
    assert fits(balances, 3)


def test_a_budget_that_only_warns_lets_in_and_says_so() -> None:
    balances = at_hand(a_queue("a", a_budget(1, onExhausted="Warn"), a_budget(3)))

    assert fits(balances, 2)
    (warning,) = balances.warnings(QueueName("a"), {GPU: 2})
    assert (warning.needed, warning.balance.left) == (7200, 3600)
    assert balances.warnings(QueueName("a"), {GPU: 1}) == ()


def test_a_budget_window_that_is_not_open_binds_no_gang() -> None:
    window = a_budget(1, None, start="2026-12-01T00:00:00Z", end="2026-12-24T00:00:00Z")
    before, within = at_hand(a_queue("a", window)), at_hand(a_queue("a", window), now=NOW + timedelta(days=20))

    assert before.of_queue(QueueName("a")) == ()
    assert fits(before, 1000)
    assert not fits(within, 2)


def test_a_gang_without_a_charge_starts_although_the_budget_is_overspent() -> None:
    balances = at_hand(a_queue("a", a_budget(1)), spent={"a": 2})

    assert left(balances, "a") == [-1]
    assert fits(balances, 0)
    assert balances.shortage(QueueName("a"), {MeterName("other"): 5}) is None
    assert not fits(balances, 1)


def test_a_shortage_says_all_numbers_and_when_there_is_more() -> None:
    budget = a_budget(9000, "Month", timeZone="Europe/Berlin")
    start = datetime(2026, 10, 31, 23, tzinfo=UTC)
    balances = at_hand(
        a_queue("a", budget),
        booked={start: {(QueueName("a"), GPU): 8995 * 3600 + 1800}},
        placements=[a_placement("a", 2, ago=timedelta(minutes=30))],
    )

    shortage = balances.shortage(QueueName("a"), {GPU: 4})

    assert shortage is not None
    assert shortage.message == (
        "queue a has 3.5 hours of gpu left of its budget of 9000 a month (spent 8995.5, promised to gangs that"
        " were let in 1), the gang needs 4; it is full again at 2026-12-01T00:00:00+01:00"
    )
    assert shortage.details == {
        "queue": "a",
        "meter": "gpu",
        "hours": "9000",
        "spent": "8995.5",
        "promised": "1",
        "left": "3.5",
        "needed": "4",
        "start": "2026-10-31T23:00:00+00:00",
        "end": "2026-11-30T23:00:00+00:00",
        "reset": "2026-11-30T23:00:00+00:00",
        "period": "Month",
        "timeZone": "Europe/Berlin",
        "scope": "Cluster",
    }


def test_a_gang_that_needs_more_than_the_whole_budget_is_told_so() -> None:
    balances = at_hand(a_queue("a", a_budget(3)))

    needs_all, needs_more = (balances.shortage(QueueName("a"), {GPU: gpus}, HOUR) for gpus in (3, 4))

    assert needs_all is None
    assert needs_more is not None
    assert ", the gang needs 4, more than the whole budget; " in needs_more.message


def test_a_global_budget_counts_what_other_clusters_have_taken() -> None:
    budget_balance = BudgetKey(QueueName("a"), GPU, DAY, DAY + timedelta(days=1))
    balances = at_hand(
        a_queue("a", a_budget(10, scope="Global"), a_budget(8)), spent={"a": 1}, elsewhere={budget_balance: 5 * 3600}
    )

    assert left(balances, "a") == [4, 7]
    balances.charge(QueueName("a"), {GPU: 3})
    shortage = balances.shortage(QueueName("a"), {GPU: 2})
    assert shortage is not None
    assert "taken by other clusters 5" in shortage.message
    assert shortage.details["elsewhere"] == "5"


def test_the_share_of_a_global_budget_is_all_that_this_cluster_took_under_the_smallest_limit_that_holds() -> None:
    balances = at_hand(
        a_queue("a", *(a_budget(n, scope="Global", onExhausted=end) for n, end in ((3, "Warn"), (9, "Hold")))),
        a_queue("b", a_budget(5, scope="Global", onExhausted="Warn")),
        a_queue("c", a_budget(5)),
        spent={"a": 1},
    )
    balances.charge(QueueName("a"), {GPU: 3})

    first, second = (share for share in balances.shares() if share.start == DAY)

    assert (first.queue, first.start, first.end) == ("a", DAY, DAY + timedelta(days=1))
    assert (first.limit, first.seconds) == (9 * 3600, 4 * 3600)
    assert (second.queue, second.limit) == ("b", 10**38 - 1)


AHEAD: dict[str, tuple[dict[str, Any], datetime, timedelta, float]] = {
    "nothing where the time ends before": (a_budget(9), DAY + timedelta(days=1), 11 * HOUR, 0),
    "the rest of the time where it goes on": (a_budget(9), DAY + timedelta(days=1), 14 * HOUR, 2),
    "the whole next period where it lasts for longer": (a_budget(9), DAY + timedelta(days=1), 99 * HOUR, 24),
    "what lies in a window that comes": (
        a_budget(9, None, start="2026-11-21T15:00:00Z", end="2026-11-21T17:00:00Z"),
        *(DAY + 15 * HOUR, 4 * HOUR, 1),
    ),
}


@pytest.mark.parametrize(("budget", "start", "runtime", "hours"), AHEAD.values(), ids=AHEAD)
@pytest.mark.parametrize("ago", [timedelta(0), HOUR])
def test_use_committed_to_the_next_period_of_a_global_budget_is_stated_ahead_whatever_the_limit(
    budget: dict[str, Any], start: datetime, runtime: timedelta, hours: float, ago: timedelta
) -> None:
    declared = a_queue("a", {**budget, "scope": "Global"}, budget)
    let_in = [a_placement("a", 2, ago=ago)]
    balances = at_hand(declared, placements=let_in, runtimes={GangUid("g"): runtime + ago})

    balances.charge(QueueName("a"), {GPU: 3}, runtime)

    (share,) = (share for share in balances.shares() if share.start > NOW)
    assert (share.start, share.limit) == (start, 10**38 - 1)
    assert share.seconds == (2 + 3) * hours * 3600
    balances.give_back(QueueName("a"), {GPU: 3}, runtime)
    assert [share.seconds for share in balances.shares() if share.start > NOW] == [2 * hours * 3600]


def test_use_committed_to_the_next_period_does_not_reduce_what_is_left_of_the_present_one() -> None:
    late = DAY + 23 * HOUR
    balances = at_hand(a_queue("a", a_budget(3, scope="Global"), maxRuntime="72h"), now=late)

    balances.charge(QueueName("a"), {GPU: 2})

    assert fits(balances, 1)
    assert left(balances, "a") == [1]


def test_each_period_asks_the_ledger_from_its_own_beginning() -> None:
    tree = Tree.build([a_queue("a", a_budget(1), a_budget(1, "Month")), a_queue("b", a_budget(1, "Month"))])

    assert budgets.starts(tree, NOW) == (MONTH, DAY)
    with pytest.raises(KeyError):
        Balances(tree, NOW, Sources(booked={DAY: {}}))


def test_spent_and_committed_use_of_a_deleted_queue_counts_in_the_budget_of_its_parent() -> None:
    deleted = a_queue("b", a_budget(5), parent="a")
    deleted = replace(deleted, meta=replace(deleted.meta, deleted=NOW))
    balances = at_hand(
        a_queue("a", a_budget(24)), deleted, spent={"b": 4}, placements=[a_placement("b", 2, ago=timedelta(0))]
    )

    assert (left(balances, "a"), left(balances, "b")) == ([18], [-1])


def test_a_queue_that_is_inactive_or_unknown_has_no_budget() -> None:
    balances = at_hand(
        a_queue("a", a_budget(1), parent="nowhere"), spent={"a": 5}, placements=[a_placement("gone", 1, ago=HOUR)]
    )

    assert fits(balances, 100)
    assert fits(balances, 100, queue="gone")


def test_every_window_is_open_for_its_own_time() -> None:
    windows = [
        a_budget(1, None, start=f"2026-{month}-01T00:00:00Z", end="2026-12-24T00:00:00Z") for month in ("10", "11")
    ]

    balances = at_hand(a_queue("a", *windows))

    assert [one.span.start.month for one in balances.of_queue(QueueName("a"))] == [10, 11]


def test_the_budgets_of_a_queue_that_is_in_no_tree_are_not_kept() -> None:
    balances = at_hand(a_queue("a", a_budget(1)), a_queue("b", a_budget(1), parent="nobody"), a_queue("c"))

    assert [left(balances, name) for name in "abc"] == [[1], [], []]
    assert fits(balances, 100, queue="b")
