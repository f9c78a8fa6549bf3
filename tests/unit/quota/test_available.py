import pytest

from admission.api.values.names import MeterName, QueueName
from admission.quota.tree import MAX_DEPTH
from tests.unit.quota import available
from tests.unit.quota.trees import GPU, TreeBuilder, a_pair, a_tree

A = QueueName("a")


def below(builder: TreeBuilder, depth: int, *, used: int) -> TreeBuilder:
    """Add a chain of queues under the root, of which the last uses something."""
    for level in range(2, depth + 1):
        parent = "root" if level == 2 else f"q-{level - 1}"
        builder.queue(f"q-{level}", parent=parent, used=used if level == depth else 0)
    return builder


LEFT = {
    "a queue alone has its quota less its usage": (a_tree().queue("a", 8, used=3), 5),
    "a meter that nobody mentions is 0": (a_tree().queue("a"), 0),
    "what a sibling leaves idle may be borrowed": (a_pair().queue("b", 6, parent="root"), 8),
    "what a sibling uses may not": (a_pair().queue("b", 6, parent="root", used=5), 3),
    "a queue that is not mentioned may borrow too": (
        a_tree().queue("root", 4).queue("a", parent="root"),
        4,
    ),
    "its limit caps a loan": (a_pair(borrows=1).queue("b", 6, parent="root"), 3),
    "a limit of 0 forbids loans": (a_pair(borrows=0).queue("b", 6, parent="root"), 2),
    "a loan that is out counts against the limit": (a_pair(borrows=3, used=4).queue("b", 6, parent="root"), 1),
    "a sibling lends no more than its limit": (a_pair().queue("b", 6, parent="root", lends=1), 3),
    "a lender keeps what it does not lend": (
        a_tree().queue("root").queue("a", 6, parent="root", lends=1).queue("b", 2, parent="root", used=3),
        5,
    ),
    "the parent's own quota is shared": (a_tree().queue("root", 4).queue("a", 2, parent="root"), 6),
    "a cousin's quota may be borrowed": (
        a_tree()
        .queue("root")
        .queue("x", parent="root")
        .queue("y", parent="root")
        .queue("a", 1, parent="x")
        .queue("b", 5, parent="y", used=2),
        4,
    ),
    "a parent's borrowing limit caps all of its children": (
        a_tree()
        .queue("root")
        .queue("x", 0, parent="root", borrows=2)
        .queue("y", 5, parent="root")
        .queue("a", 1, parent="x")
        .queue("b", 1, parent="x", used=1),
        3,
    ),
    "more used than there is leaves 0, not less": (a_tree().queue("a", 2, used=5), 0),
    "an inactive queue has nothing": (a_tree().queue("a", 5, parent="gone"), 0),
    "nor has one that is being deleted": (a_tree().queue("a", 5, deleted=True), 0),
    "what one that is being deleted has borrowed is taken": (
        a_pair().queue("x", 0, parent="root", used=4, deleted=True).queue("b", 6, parent="root"),
        4,
    ),
    "what it leaves idle may be borrowed": (a_pair().queue("x", 3, parent="root", deleted=True), 5),
    "what is used below a queue that is gone is taken": (
        a_pair().queue("x", parent="root").queue("y", 0, parent="x", used=1).gone("x"),
        1,
    ),
    "what is used by a queue that is too deep is taken": (below(a_pair(), MAX_DEPTH + 3, used=1), 1),
}


@pytest.mark.parametrize(("tree", "left"), LEFT.values(), ids=LEFT)
def test_the_available_quota_of_a_queue_follows_its_tree(tree: TreeBuilder, left: int) -> None:
    assert tree.left("a") == left


POTENTIAL = {
    "usage does not matter": (a_pair(used=2).queue("b", 6, parent="root", used=6), 8),
    "limits do": (a_pair(borrows=1).queue("b", 6, parent="root"), 3),
    "and so do those of others": (a_pair().queue("b", 6, parent="root", lends=2), 4),
}


@pytest.mark.parametrize(("tree", "most"), POTENTIAL.values(), ids=POTENTIAL)
def test_the_potential_quota_of_a_queue_follows_its_tree(tree: TreeBuilder, most: int) -> None:
    assert tree.potential("a") == most


def test_a_loan_shows_at_both_ends() -> None:
    tree = a_pair(used=5).queue("b", 6, parent="root", used=1)

    assert (tree.borrowed("a"), tree.lent("a")) == (3, 0)
    assert (tree.borrowed("b"), tree.lent("b")) == (0, 3)


def test_a_charge_that_fits_says_nothing() -> None:
    tree = a_tree().queue("a", 8, used=3)

    assert available.charge_fits(tree.tree, tree.usage, A, {GPU: 5}) is None


def test_a_charge_that_does_not_fit_says_what_is_short() -> None:
    tree = a_pair(used=1).queue("b", 6, parent="root", used=5)
    short = available.charge_fits(tree.tree, tree.usage, A, {GPU: 3})

    assert short is not None
    assert short.message == (
        "queue a has 2 gpu left (nominal 2, used 1), the gang needs 3;"
        " 5 more that it may borrow are taken by other queues;"
        " nobody of other queues is evicted for the gang, as preemption.reclaim of queue a is Never"
    )
    assert short.details == {
        "queue": "a",
        "meter": "gpu",
        "needed": "3",
        "left": "2",
        "nominal": "2",
        "used": "1",
        "potential": "8",
        "reclaim": "Never",
    }


def test_a_charge_that_can_never_fit_says_so() -> None:
    tree = a_tree().queue("a", 2)
    short = available.charge_fits(tree.tree, tree.usage, A, {GPU: 3})

    assert short is not None
    assert short.message.endswith("the gang needs 3; the queue can never have more than 2")


def test_a_charge_on_a_meter_without_quota_is_short_by_the_whole_amount() -> None:
    tree = a_tree().queue("a", 2)
    short = available.charge_fits(tree.tree, tree.usage, A, {GPU: 1, MeterName("memory"): 1})

    assert short is not None
    assert (short.meter, short.left) == ("memory", 0)


def test_an_inactive_queue_affords_nothing() -> None:
    tree = a_tree().queue("a", 2, parent="gone")
    short = available.charge_fits(tree.tree, tree.usage, A, {})

    assert short is not None
    assert short.message == "queue a is not active"


def test_the_meters_of_a_queue_are_those_in_its_own_quotas_and_its_ancestors() -> None:
    tree = a_tree().queue("root", 4).queue("a", parent="root").tree

    assert list(available.mentioned(tree, A)) == [GPU]
