"""Shares: of which meter, of what capacity, by which weight, and how long past use counts."""

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import pytest

from admission.api.muster import queues
from admission.api.muster.ledger_entries import UsageInterval
from admission.api.values.names import MeterName, QueueName
from admission.quota import fair_share
from admission.quota.fair_share import Rules, Shares, UsageHistory
from admission.quota.headroom import QueueUsage
from admission.quota.tree import Tree

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
GPU, MEMORY = MeterName("gpu"), MeterName("memory")
FAIR: dict[str, Any] = {"fairSharing": {}}
WEEK: dict[str, Any] = {"fairSharing": {"halfLife": "168h"}}


def a_queue(name: str, *, parent: str | None = None, quotas: dict[str, int] | None = None, **spec: Any) -> queues.Queue:
    listed = [{"meter": meter, "nominal": nominal} for meter, nominal in (quotas or {}).items()]
    place = {"parent": parent} if parent else {}
    return queues.decode({"metadata": {"name": name}, "spec": {"quotas": listed, **place, **spec}})


def a_root(**quotas: int) -> queues.Queue:
    return a_queue("root", quotas=quotas)


def a_child(name: str, weight: Any = 1, **spec: Any) -> queues.Queue:
    return a_queue(name, parent="root", **({"fairSharing": {"weight": weight}} | spec))


def shares(*declared: queues.Queue, memory: UsageHistory | None = None, **usage: dict[str, int]) -> Shares:
    tree = Tree.build(declared)
    used = {
        QueueName(queue): {MeterName(meter): amount for meter, amount in amounts.items()}
        for queue, amounts in usage.items()
    }
    return Shares(QueueUsage(tree, used), used, Rules.from_tree(tree), memory)


def share(found: Shares, queue: str) -> float:
    return found.share(QueueName(queue))


def used(queue: str, start: timedelta, end: timedelta, seconds: int) -> UsageInterval:
    """Return an interval of so long ago."""
    return UsageInterval(queue=QueueName(queue), meter=GPU, start=NOW - start, end=NOW - end, seconds=seconds)


def test_the_share_is_that_of_the_meter_that_is_used_most() -> None:
    found = shares(a_root(gpu=10, memory=100), a_child("a"), a={"gpu": 2, "memory": 30})

    assert share(found, "a") == 0.3


def test_twice_the_weight_is_half_the_share() -> None:
    found = shares(a_root(gpu=8), a_child("a", 2), a_child("b", "0.5"), a={"gpu": 4}, b={"gpu": 1})

    assert share(found, "a") == share(found, "b") == 0.25


def test_weight_0_is_an_infinite_share_of_anything_and_none_of_nothing() -> None:
    found = shares(a_root(gpu=8), a_child("a", 0), a_child("b", 0), a={"gpu": 1})

    assert share(found, "a") == math.inf
    assert share(found, "b") == 0


def test_use_of_a_meter_without_quota_is_an_infinite_share() -> None:
    assert share(shares(a_root(gpu=8), a_child("a"), a={"memory": 1}), "a") == math.inf


def test_the_use_of_those_below_counts() -> None:
    found = shares(
        a_root(gpu=8), a_child("a"), a_queue("a1", parent="a"), a_queue("a2", parent="a"), a1={"gpu": 1}, a2={"gpu": 3}
    )

    assert share(found, "a") == 0.5
    assert not found.matter(QueueName("a1"))
    assert share(found, "a1") == 0


def test_a_queue_with_fair_sharing_makes_the_shares_of_its_siblings_count() -> None:
    found = shares(a_root(gpu=8), a_child("a", 2), a_queue("b", parent="root"), b={"gpu": 2})

    assert share(found, "b") == 0.25


def test_only_what_is_borrowed_counts() -> None:
    owner = a_child("a", quotas={"gpu": 4})
    found = shares(a_root(gpu=4), owner, a_child("b"), a={"gpu": 6}, b={"gpu": 1})

    assert (share(found, "a"), share(found, "b")) == (0.25, 0.125)


def test_what_those_below_have_is_no_loan() -> None:
    below = a_queue("a1", parent="a", quotas={"gpu": 4})
    assert share(shares(a_root(gpu=4), a_child("a"), below, a={"gpu": 4}), "a") == 0


def test_roots_borrow_of_nobody() -> None:
    found = shares(a_queue("a", quotas={"gpu": 6}, **FAIR), a_queue("b", quotas={"gpu": 2}), a={"gpu": 2}, b={"gpu": 4})

    assert (share(found, "a"), share(found, "b")) == (0, 0)


def test_by_history_roots_share_what_all_trees_have() -> None:
    found = shares(a_queue("a", quotas={"gpu": 6}, **WEEK), a_queue("b", quotas={"gpu": 2}), a={"gpu": 2}, b={"gpu": 4})

    assert (share(found, "a"), share(found, "b")) == (0.125, 0.25)


def test_the_capacity_is_what_the_parent_can_borrow_as_well() -> None:
    found = shares(a_root(gpu=16), a_queue("team", parent="root"), a_queue("a", parent="team", **FAIR), a={"gpu": 4})

    assert share(found, "a") == 0.25


def test_by_history_the_capacity_includes_what_children_lend_to_nobody() -> None:
    kept = {"quotas": [{"meter": "gpu", "nominal": 8, "lendingLimit": 0}], **WEEK}
    found = shares(
        a_root(), queues.decode({"metadata": {"name": "a"}, "spec": {"parent": "root", **kept}}), a={"gpu": 4}
    )

    assert share(found, "a") == 0.25


def test_the_incoming_gang_counts_in_the_share_of_its_queue() -> None:
    found = shares(a_root(gpu=8), a_child("a", quotas={"gpu": 2}), a_child("b", 0), a={"gpu": 1})
    a, b = QueueName("a"), QueueName("b")

    assert found.place(a, a, {GPU: 1}) == (False, 0, 0)
    assert found.place(a, a, {GPU: 3}) == (True, 0.2, 0)
    assert found.place(b, b, {GPU: 5}) == (True, math.inf, 0.5)
    assert found.place(b, b, {GPU: 0}) == (False, 0, 0)
    found.charge(a, {GPU: 2})
    assert found.place(a, a, {GPU: 1}) == (True, 0.2, 0)


def test_a_loan_of_another_meter_does_not_make_a_gang_a_borrower() -> None:
    found = shares(a_root(gpu=8, memory=8), a_child("a", quotas={"gpu": 2}), a={"memory": 4})
    a = QueueName("a")

    assert found.place(a, a, {GPU: 1}) == (False, 0.5, 0)


def test_a_grant_raises_the_share_at_once_and_can_be_undone() -> None:
    found = shares(a_root(gpu=8), a_child("a"), a_queue("a1", parent="a"))

    found.charge(QueueName("a1"), {GPU: 4})
    assert share(found, "a") == 0.5
    found.give_back(QueueName("a1"), {GPU: 4})
    assert share(found, "a") == 0


def test_without_fair_sharing_no_share_matters() -> None:
    found = shares(a_root(gpu=8), a_queue("a", parent="root"), a={"gpu": 8})

    assert not found.matter(QueueName("a"))
    assert share(found, "a") == 0


def test_an_inactive_queue_has_no_share() -> None:
    assert share(shares(a_queue("a", parent="nowhere", **FAIR), a={"gpu": 8}), "a") == 0


DECAYED: dict[str, tuple[tuple[timedelta, timedelta], float]] = {
    "what was used for ever": ((timedelta(days=7 * 60), timedelta(0)), 8),
    "what was used in the last half-life is half of it": ((timedelta(days=7), timedelta(0)), 4),
    "and in the one before a quarter": ((timedelta(days=14), timedelta(days=7)), 2),
    "what was used for no time": ((timedelta(days=7), timedelta(days=7)), 0),
}


@pytest.mark.parametrize(("interval", "decayed"), DECAYED.values(), ids=DECAYED)
def test_past_use_counts_by_its_age(interval: tuple[timedelta, timedelta], decayed: float) -> None:
    start, end = interval
    tree = Tree.build([a_queue("a", quotas={"gpu": 16}, **WEEK)])
    past = used("a", start, end, round(8 * (start - end).total_seconds()))

    memory = fair_share.start_history(Rules.from_tree(tree), [past], NOW)

    found = Shares(QueueUsage(tree, {}), {}, Rules.from_tree(tree), memory)
    assert share(found, "a") == pytest.approx(decayed / 16 / 2, abs=1e-12)


def test_decayed_past_usage_is_the_same_whether_read_at_once_or_in_parts() -> None:
    rules = Rules.from_tree(Tree.build([a_queue("a", **WEEK)]))
    past, recent = used("a", 30 * HOUR, 20 * HOUR, 72_000), used("a", 20 * HOUR, 0 * HOUR, 7_200)

    once = fair_share.start_history(rules, [past, recent], NOW)
    twice = fair_share.start_history(rules, [past], NOW - 20 * HOUR).after([recent], NOW)

    assert once.use.keys() == twice.use.keys() == {("a", "gpu", timedelta(days=7))}
    assert list(once.use.values()) == pytest.approx(list(twice.use.values()))


def test_past_usage_is_the_same_in_whichever_order_it_is_listed() -> None:
    """Queues that have used the same have the same share, not one that differs in the last digit."""
    tree = Tree.build([a_root(gpu=16), *(a_child(name, **WEEK) for name in "ab")])
    tree = Tree.build([*tree.queues.values(), *(a_queue(f"{a}{n}", parent=a) for a in "ab" for n in range(4))])
    rules, parts = Rules.from_tree(tree), [(number, 3 * number, 70_001 * number) for number in range(1, 4)]

    def history(*order: int) -> UsageHistory:
        listed = [parts[at] for at in order]
        intervals = [used(name, end * HOUR, start * HOUR, n) for name in "ab" for start, end, n in listed]
        each = [
            used(f"{a}{at}", end * HOUR, start * HOUR, n) for a in "ab" for at, (start, end, n) in enumerate(listed)
        ]
        return fair_share.start_history(rules, intervals + each, NOW)

    first, second = history(0, 1, 2), history(2, 1, 0)
    both = UsageHistory(at=NOW, use={**_of(first, "a"), **_of(second, "b")}, kept=first.kept)

    found = Shares(QueueUsage(tree, {}), {}, rules, both)
    assert [*_of(first, "a", exactly=True).values()] == [*_of(second, "a", exactly=True).values()]
    assert share(found, "a") == share(found, "b") > 0


def _of(history: UsageHistory, queue: str, *, exactly: bool = False) -> dict[Any, float]:
    """Return the part of a history that is of a queue and, unless exactly, of those whose names begin like its own."""
    return {key: use for key, use in history.use.items() if key[0] == queue or (not exactly and key[0][0] == queue)}


@pytest.mark.parametrize("hours", [0, 1, 100, 168, 169.3, 4000])
def test_a_weight_is_a_power_of_two_to_the_last_digits_of_a_number(hours: float) -> None:
    with localcontext(prec=40):
        power = Decimal(2) ** -(Decimal(str(hours)) / 168)

    assert fair_share._weight(timedelta(hours=hours), 168 * HOUR) == pytest.approx(float(power), rel=2**-50)


def test_a_clock_that_went_back_makes_nothing_younger() -> None:
    rules = Rules.from_tree(Tree.build([a_queue("a", **WEEK)]))
    memory = fair_share.start_history(rules, [used("a", HOUR, timedelta(0), 3600)], NOW)

    assert memory.after([], NOW - 5 * HOUR) == memory


def test_a_queue_without_a_half_life_uses_that_of_its_siblings_and_a_parent_its_own() -> None:
    rules = Rules.from_tree(
        Tree.build(
            [
                a_queue("root", fairSharing={"halfLife": "1h"}),
                a_child("a", fairSharing={"halfLife": "2h"}),
                a_child("b", fairSharing={"halfLife": "4h"}),
                a_child("c", fairSharing=None),
            ]
        )
    )

    assert rules.counted_half_lives == {
        "root": {HOUR},
        "a": {HOUR, 2 * HOUR},
        "b": {HOUR, 4 * HOUR},
        "c": {HOUR, 4 * HOUR},
    }
    assert rules.since(NOW) == NOW - 30 * 4 * HOUR


def test_a_memory_serves_until_another_half_life_counts() -> None:
    before, after = (
        Rules.from_tree(Tree.build([a_root(), a_child("a", fairSharing={"halfLife": text})])) for text in ("1h", "2h")
    )
    memory = fair_share.start_history(before, [], NOW)

    assert memory.covers(before)
    assert memory.covers(Rules.from_tree(Tree.build([a_root()])))
    assert not memory.covers(after)


def test_the_longest_half_life_reaches_back_to_the_beginning_of_time_at_most() -> None:
    rules = Rules.from_tree(Tree.build([a_queue("a", fairSharing={"halfLife": "99999h99999h99999h"})]))

    assert rules.since(NOW) >= datetime(2, 1, 1, tzinfo=UTC)


def test_past_usage_of_one_second_counts_and_that_of_no_time_or_amount_does_not() -> None:
    rules = Rules.from_tree(Tree.build([a_queue("a", **WEEK)]))
    second, nothing = timedelta(seconds=1), timedelta(0)

    assert [*fair_share.start_history(rules, [used("a", second, nothing, 8)], NOW).use] == [
        ("a", "gpu", timedelta(days=7))
    ]
    assert fair_share.start_history(rules, [used("a", HOUR, HOUR, 8)], NOW).use == {}
    assert fair_share.start_history(rules, [used("a", HOUR, nothing, 0)], NOW).use == {}


def test_a_meter_without_past_usage_adds_nothing_to_the_share() -> None:
    found = shares(a_queue("a", quotas={"memory": 16}, **WEEK), a={"memory": 4})

    assert share(found, "a") == 4 / 16 / 2
