from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from admission.api.names import QueueName
from admission.quota import ordering
from admission.quota.tree import MAX_DEPTH, Inactive
from tests.unit.quota.trees import a_tree

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_queues_without_flaws_are_active_and_know_their_path() -> None:
    tree = a_tree().queue("leaf", parent="mid").queue("root").queue("mid", parent="root").tree

    assert tree.path(QueueName("leaf")) == ("leaf", "mid", "root")
    assert tree.children == {"mid": ("leaf",), "root": ("mid",)}
    assert tree.active(QueueName("leaf"))
    assert not tree.active(QueueName("unknown"))


def test_a_missing_parent_stops_the_queue_and_those_under_it() -> None:
    flaws = a_tree().queue("a", parent="gone").queue("b", parent="a").queue("c").tree.flaws

    assert {name: flaw.reason for name, flaw in flaws.items()} == {
        "a": Inactive.MISSING_PARENT,
        "b": Inactive.ANCESTOR,
    }
    assert flaws[QueueName("a")].message == ("parent gone of queue a does not exist; create it or correct spec.parent")


def test_a_cycle_names_its_queues() -> None:
    flaws = a_tree().queue("a", parent="b").queue("b", parent="a").queue("c", parent="a").tree.flaws

    assert {name: flaw.reason for name, flaw in flaws.items()} == {
        "a": Inactive.CYCLE,
        "b": Inactive.CYCLE,
        "c": Inactive.ANCESTOR,
    }
    assert "a → b → a" in flaws[QueueName("a")].message


def test_a_queue_may_not_be_its_own_parent() -> None:
    assert a_tree().queue("a", parent="a").tree.flaws[QueueName("a")].reason is Inactive.CYCLE


def test_a_tree_may_be_sixteen_deep_and_no_deeper() -> None:
    builder = a_tree().queue("q-1")
    for depth in range(2, MAX_DEPTH + 2):
        builder.queue(f"q-{depth}", parent=f"q-{depth - 1}")

    assert {name: flaw.reason for name, flaw in builder.tree.flaws.items()} == {f"q-{MAX_DEPTH + 1}": Inactive.TOO_DEEP}


class Waiting(NamedTuple):
    key: str
    queue: str
    priority: int = 0
    queued_since: datetime = NOON


FIRST = Waiting("team/b", "q", queued_since=NOON - timedelta(hours=1))
GANGS = [Waiting("team/a", "q"), FIRST, Waiting("team/c", "q", priority=5), Waiting("team/d", "other")]


def test_priority_comes_first_then_the_longer_wait_then_the_name() -> None:
    assert [gang.key for gang in ordering.in_order(GANGS)] == ["team/c", "team/b", "team/a", "team/d"]


def test_a_queue_has_one_head() -> None:
    assert [gang.key for gang in ordering.heads(GANGS, lambda gang: gang.queue)] == ["team/c", "team/d"]
