"""Who is next: by rank, or by the smallest share where fair sharing is declared."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admission.api.muster import queues
from admission.api.values.names import MeterName, QueueName
from admission.quota import queue_order
from admission.quota.fair_share import Rules, Shares
from admission.quota.headroom import QueueUsage
from admission.quota.queue_order import Tournament
from admission.quota.tree import Tree
from tests.unit.quota.test_fair_share import FAIR, WEEK, a_child, a_queue, a_root

GPU = MeterName("gpu")
START = datetime(2026, 11, 21, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Gang:
    queue: QueueName
    key: str
    priority: int = 0
    queued_since: datetime = START
    gpus: int = 1


def a_gang(key: str, *, priority: int = 0, minute: int = 0, gpus: int = 1) -> Gang:
    """Return a gang of the queue that its name begins with: `a/1`."""
    return Gang(QueueName(key.partition("/")[0]), key, priority, START + timedelta(minutes=minute), gpus)


def a_tournament(declared: Iterable[queues.Queue], *gangs: Gang, **usage: int) -> Tournament[Gang]:
    tree = Tree.build(declared)
    used = {QueueName(queue): {GPU: amount} for queue, amount in usage.items()}
    shares = Shares(QueueUsage(tree, used), used, Rules.from_tree(tree))
    return Tournament(shares, gangs, lambda gang: gang.queue, lambda gang: {GPU: gang.gpus})


def keys(gangs: Iterable[Gang]) -> list[str]:
    return [gang.key for gang in gangs]


def granted(tournament: Tournament[Gang], gpus: int = 1) -> list[str]:
    """Return the order when every gang is granted."""
    found = []
    for gang in tournament:
        tournament.charge(gang.queue, {GPU: gpus})
        found.append(gang.key)
    return found


GANGS = [a_gang("a/1", minute=3), a_gang("b/1", minute=1), a_gang("a/2", priority=1, minute=9), a_gang("b/2", minute=2)]


def test_priority_comes_first_then_the_longer_wait_then_the_name() -> None:
    like_the_second = a_gang("b/0", minute=2)

    assert keys(queue_order.in_order([*GANGS, like_the_second])) == ["a/2", "b/1", "b/0", "b/2", "a/1"]


def test_the_heads_are_the_first_of_every_queue() -> None:
    assert keys(queue_order.heads(GANGS, lambda gang: gang.queue)) == ["a/2", "b/1"]


def test_without_fair_sharing_rank_alone_decides() -> None:
    declared = [a_root(gpu=8), a_queue("a", parent="root"), a_queue("b")]

    assert granted(a_tournament(declared, *GANGS, a=7)) == keys(queue_order.in_order(GANGS))


def test_a_queue_within_its_quota_comes_before_one_that_borrows_whatever_the_priority() -> None:
    declared = [a_root(gpu=4), a_queue("a", parent="root"), a_queue("b", parent="root", quotas={"gpu": 2})]
    waiting = [a_gang("a/1", priority=9), a_gang("b/1", minute=1), a_gang("b/2", minute=2), a_gang("b/3", minute=3)]

    assert granted(a_tournament(declared, *waiting)) == ["b/1", "b/2", "a/1", "b/3"]


def test_a_team_within_its_quota_comes_before_one_that_borrows() -> None:
    declared = [
        *(a_root(gpu=4), a_queue("left", parent="root"), a_queue("right", parent="root", quotas={"gpu": 1})),
        *(a_queue("a", parent="left"), a_queue("b", parent="right")),
    ]

    assert granted(a_tournament(declared, a_gang("a/1", priority=9), a_gang("b/1"), a_gang("b/2"))) == [
        "b/1",
        "a/1",
        "b/2",
    ]


@pytest.mark.parametrize(("weights", "order"), [((), ["y/1", "x/1"]), (("team", "x"), ["x/1", "y/1"])])
def test_who_is_within_the_quota_of_its_queue_is_no_borrower_though_its_branch_is(
    weights: tuple[str, ...], order: list[str]
) -> None:
    """Unless shares decide between the branches, as in Kueue."""
    sharing: dict[str, dict[str, Any]] = {name: {"fairSharing": {"weight": "1"}} for name in weights}
    declared = [
        a_root(gpu=2),
        a_queue("team", parent="root", **sharing.get("team", {})),
        a_queue("y", parent="team", quotas={"gpu": 2}),
        a_queue("z", parent="team"),
        a_queue("x", parent="root", **sharing.get("x", {})),
    ]
    waiting = [a_gang("x/1", priority=9), a_gang("y/1"), a_gang("z/1", priority=9)]

    found = keys(a_tournament(declared, *waiting, z=3))

    assert [key for key in found if key != "z/1"] == order
    assert found.index("z/1") > found.index("y/1"), "a borrower of its branch"


def test_a_large_gang_borrows_where_a_small_one_does_not() -> None:
    declared = [a_root(gpu=4), *(a_queue(name, parent="root", quotas={"gpu": 2}) for name in "ab")]

    assert granted(a_tournament(declared, a_gang("a/1", gpus=3), a_gang("b/1", minute=1, gpus=2))) == ["b/1", "a/1"]


def test_an_owner_within_its_quota_comes_before_a_borrower_of_a_small_share() -> None:
    """The owner uses more in all, and has the larger share by another meter."""
    declared = [a_root(gpu=100), a_child("a", 100), a_child("b", "0.01", quotas={"gpu": 50})]

    assert granted(a_tournament(declared, a_gang("a/1", priority=9), a_gang("b/1", minute=9), b=49)) == ["b/1", "a/1"]


def test_the_share_with_the_gang_decides_between_borrowers() -> None:
    declared = [a_root(gpu=8), a_child("a"), a_child("b")]

    assert granted(a_tournament(declared, a_gang("a/1", gpus=4), a_gang("b/1", minute=1, gpus=1), b=1)) == [
        "b/1",
        "a/1",
    ]


def test_the_smallest_share_goes_first_whatever_the_priority() -> None:
    declared = [a_root(gpu=8), a_child("a"), a_child("b")]

    assert next(a_tournament(declared, *GANGS, a=1)).key == "b/1"
    assert next(a_tournament(declared, *GANGS, b=1)).key == "a/2"


def test_equal_shares_are_ranked() -> None:
    assert next(a_tournament([a_root(gpu=8), a_child("a"), a_child("b")], *GANGS)).key == "a/2"


def test_each_grant_changes_the_order_of_the_rest() -> None:
    declared = [a_root(gpu=80), a_child("a", 2), a_child("b")]
    waiting = [a_gang(f"{queue}/{n}") for queue in "ab" for n in range(4)]

    # Shares of a grow by 1/160 and of b by 1/80 with each, the next one counted in; equal ones are ranked by name.
    assert granted(a_tournament(declared, *waiting)) == ["a/0", "a/1", "b/0", "a/2", "a/3", "b/1", "b/2", "b/3"]


def test_a_queue_whose_gang_is_not_granted_stays_in_front() -> None:
    declared = [a_root(gpu=8), a_child("a"), a_child("b")]

    assert keys(a_tournament(declared, *GANGS, a=1)) == ["b/1", "b/2", "a/2", "a/1"]


def test_released_usage_no_longer_counts_in_the_queue_order() -> None:
    tournament = a_tournament([a_root(gpu=8), a_child("a"), a_child("b")], *GANGS, a=1, b=2)

    assert next(tournament).key == "a/2"
    tournament.give_back(QueueName("b"), {GPU: 2})
    assert next(tournament).key == "b/1"


def test_shares_are_compared_at_every_level() -> None:
    declared = [
        *(a_root(gpu=80), a_child("left"), a_child("right")),
        *(a_queue(name, parent="left", **FAIR) for name in ("a", "b")),
        a_queue("c", parent="right"),
    ]
    waiting = [a_gang(f"{queue}/{n}") for queue in "abc" for n in range(2)]

    assert granted(a_tournament(declared, *waiting)) == ["a/0", "c/0", "b/0", "c/1", "a/1", "b/1"]


def test_a_parents_own_gangs_compete_by_rank() -> None:
    declared = [a_root(gpu=8), a_child("a"), a_child("b")]
    waiting = [a_gang("root/1", minute=2), a_gang("a/1", minute=1), a_gang("b/1", minute=3)]

    assert granted(a_tournament(declared, *waiting)) == ["a/1", "root/1", "b/1"]


def test_gangs_of_unknown_and_inactive_queues_are_ordered_too() -> None:
    declared = [a_queue("a", **WEEK), a_queue("b", parent="nowhere")]

    assert keys(a_tournament(declared, a_gang("a/1"), a_gang("b/1"), a_gang("c/1"), a=1)) == ["b/1", "c/1", "a/1"]


def test_the_queue_order_of_no_pending_gangs_is_empty() -> None:
    assert keys(a_tournament([a_root(gpu=8)])) == []


def test_a_gang_that_enters_later_has_its_place() -> None:
    tournament = a_tournament([a_queue("a"), a_queue("b")], *GANGS)

    assert next(tournament).key == "a/2"
    tournament.enter(a_gang("a/3", minute=2))
    tournament.enter(a_gang("c/1", priority=2))
    assert keys(tournament) == ["c/1", "b/1", "a/3", "b/2", "a/1"]


def test_a_gang_for_which_its_queue_keeps_its_own_quota_does_not_borrow() -> None:
    tree = Tree.build([a_root(), *(a_queue(name, parent="root", quotas={"gpu": 4}) for name in "ab")])
    used = {QueueName("a"): {GPU: 2}, QueueName("b"): {GPU: 4}}
    usage = QueueUsage(tree, used)
    usage.keep(QueueName("a"), {GPU: 2})

    shares = Shares(usage, used, Rules.from_tree(tree))
    waiting = [a_gang("a/1", minute=2, gpus=2), a_gang("b/1", minute=1)]

    assert keys(Tournament(shares, waiting, lambda gang: gang.queue, lambda gang: {GPU: gang.gpus})) == ["a/1", "b/1"]
