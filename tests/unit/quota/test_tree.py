from datetime import UTC, datetime

import pytest

from admission.api.values.names import QueueName
from admission.quota.tree import MAX_DEPTH, Inactive
from tests.unit.quota.trees import GPU, TreeBuilder, a_tree

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def a_chain(depth: int) -> TreeBuilder:
    """Return queues q-1, q-2, …, each under the one before."""
    builder = a_tree().queue("q-1")
    for level in range(2, depth + 1):
        builder.queue(f"q-{level}", parent=f"q-{level - 1}")
    return builder


def test_queues_without_problems_are_active_and_know_their_path() -> None:
    tree = a_tree().queue("leaf", parent="mid").queue("root").queue("mid", parent="root").tree

    assert tree.path(QueueName("leaf")) == ("leaf", "mid", "root")
    assert tree.children == {"mid": ("leaf",), "root": ("mid",)}
    assert tree.active(QueueName("leaf"))
    assert not tree.active(QueueName("unknown"))


def test_a_missing_parent_makes_the_queue_and_its_descendants_inactive() -> None:
    problems = a_tree().queue("a", parent="gone").queue("b", parent="a").queue("c").tree.problems

    assert {name: problem.reason for name, problem in problems.items()} == {
        "a": Inactive.MISSING_PARENT,
        "b": Inactive.ANCESTOR,
    }
    assert problems[QueueName("a")].message == (
        "parent gone of queue a does not exist; create it or correct spec.parent"
    )


def test_a_cycle_names_its_queues() -> None:
    problems = a_tree().queue("a", parent="b").queue("b", parent="a").queue("c", parent="a").tree.problems

    assert {name: problem.reason for name, problem in problems.items()} == {
        "a": Inactive.CYCLE,
        "b": Inactive.CYCLE,
        "c": Inactive.ANCESTOR,
    }
    assert "a → b → a" in problems[QueueName("a")].message


def test_a_queue_may_not_be_its_own_parent() -> None:
    assert a_tree().queue("a", parent="a").tree.problems[QueueName("a")].reason is Inactive.CYCLE


def test_a_tree_may_be_sixteen_deep_and_no_deeper() -> None:
    builder = a_chain(MAX_DEPTH + 1)

    assert {name: problem.reason for name, problem in builder.tree.problems.items()} == {
        f"q-{MAX_DEPTH + 1}": Inactive.TOO_DEEP
    }


def test_a_queue_below_a_too_deep_queue_is_too_deep() -> None:
    tree = a_chain(MAX_DEPTH + 2).tree

    assert tree.problems[QueueName(f"q-{MAX_DEPTH + 2}")].message == (
        "queue q-18 is 18 levels deep, at most 16 are supported;"
        " give it or a queue above it a parent nearer to the root"
    )
    assert tree.children.get(QueueName(f"q-{MAX_DEPTH}"), ()) == ()


def test_a_deleted_queue_and_its_descendants_are_inactive_and_keep_their_place_in_the_tree() -> None:
    tree = (
        a_tree()
        .queue("root")
        .queue("a", parent="root", deleted=True)
        .queue("b", parent="a")
        .queue("c", parent="b")
        .tree
    )

    assert {name: problem.reason for name, problem in tree.problems.items()} == {
        "a": Inactive.TERMINATING,
        "b": Inactive.ANCESTOR,
        "c": Inactive.ANCESTOR,
    }
    assert tree.problems[QueueName("a")].message.startswith("queue a is being deleted and takes no new gangs")
    assert "queue a is being deleted; mend that queue, or choose" in tree.problems[QueueName("c")].message
    assert tree.bearing(QueueName("c")) == tree.path(QueueName("c")) == ("c", "b", "a", "root")
    assert tree.active(QueueName("root"))


def test_under_a_queue_that_is_gone_use_counts_as_before_though_the_parent_is_missing() -> None:
    tree = a_tree().queue("root").queue("a", parent="root").queue("b", parent="a").queue("c", parent="b").gone("a").tree

    assert {name: problem.reason for name, problem in tree.problems.items()} == {
        "b": Inactive.MISSING_PARENT,
        "c": Inactive.ANCESTOR,
    }
    assert "parent a of queue b does not exist" in tree.problems[QueueName("c")].message
    assert tree.bearing(QueueName("c")) == ("c", "b", "a", "root")


BEARING: dict[str, tuple[TreeBuilder, tuple[str, ...]]] = {
    "too deep: the nearest above it that has a place": (
        a_chain(MAX_DEPTH + 2).queue("q", parent=f"q-{MAX_DEPTH + 2}"),
        tuple(f"q-{depth}" for depth in range(MAX_DEPTH, 0, -1)),
    ),
    "below a missing parent: nobody": (a_tree().queue("a", parent="gone").queue("q", parent="a"), ()),
    "in a circle: nobody": (a_tree().queue("a", parent="q").queue("q", parent="a"), ()),
    "unknown: nobody": (a_tree(), ()),
}


@pytest.mark.parametrize(("builder", "bearing"), BEARING.values(), ids=BEARING)
def test_the_usage_of_an_inactive_queue_counts_against(builder: TreeBuilder, bearing: tuple[str, ...]) -> None:
    assert builder.tree.bearing(QueueName("q")) == bearing


def test_a_parent_stands_before_its_children() -> None:
    tree = a_tree().queue("a", parent="b").queue("b", parent="c").queue("c").queue("d", parent="gone").tree

    assert tree.order == ("c", "b", "a")


def test_of_two_queues_of_the_same_name_the_last_counts() -> None:
    tree = a_tree().queue("a", 2).queue("b").queue("a", 8, parent="b").tree

    assert tree.path(QueueName("a")) == ("a", "b")
    assert tree.quotas[QueueName("a")][GPU].nominal == 8


@pytest.mark.parametrize("top", [None, "gone", "q-1199"], ids=["a chain", "an orphan", "a circle"])
def test_a_long_chain_names_what_is_wrong_with_each(top: str | None) -> None:
    builder = a_tree().queue("q-0", parent=top)
    for number in range(1, 1200):
        builder.queue(f"q-{number}", parent=f"q-{number - 1}")
    problems = builder.tree.problems

    assert len(problems) == 1200 - (MAX_DEPTH if top is None else 0)
    assert max(len(problem.message) for problem in problems.values()) < 300
