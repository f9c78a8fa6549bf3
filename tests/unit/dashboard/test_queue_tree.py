"""The tree of queues: sums over subtrees, busiest meters, and the lines of open branches."""

from collections.abc import Mapping

import pytest

from admission.api.muster import observed
from admission.api.muster.observed import ObservedQueue
from admission.api.values.names import QueueName
from admission.dashboard import queue_tree
from admission.dashboard.queue_tree import QueueTree


def a_tree(**parents: tuple[str, Mapping[str, tuple[int, int]]]) -> QueueTree:
    """Return a tree. parents: by queue, its parent, and by meter what is used and its nominal quota."""
    found: dict[QueueName, ObservedQueue] = {}
    for name, (parent, uses) in parents.items():
        meters = [{"meter": meter, "used": str(used), "nominal": str(most)} for meter, (used, most) in uses.items()]
        status = {"meters": meters, "gangs": {"pending": 1, "running": 2}}
        spec = {"parent": parent} if parent else {}
        found[QueueName(name)] = observed.decode_queue({"metadata": {"name": name}, "spec": spec, "status": status})
    return QueueTree(found)


FULL = a_tree(
    root=("", {}),
    left=("root", {"gpus": (8, 8), "cpus": (10, 100)}),
    right=("root", {"gpus": (4, 8)}),
    leaf=("right", {"cpus": (90, 100), "slots": (1, 0)}),
    lost=("nowhere", {"gpus": (0, 4)}),
)


def test_a_root_without_quotas_has_the_sums_of_all_below_it() -> None:
    root = FULL.sums[QueueName("root")]

    assert {meter: (use.used, use.nominal) for meter, use in root.uses.items()} == {
        "gpus": (12, 16),
        "cpus": (100, 200),
        "slots": (1, 0),
    }
    assert (root.waiting, root.started) == (4, 8)


BUSIEST = {"left": "gpus", "right": "slots", "lost": "gpus", "root": "slots"}


@pytest.mark.parametrize(("queue", "meter"), BUSIEST.items(), ids=BUSIEST)
def test_the_busiest_meter_has_the_largest_part_taken_and_what_has_no_quota_comes_first(queue: str, meter: str) -> None:
    assert FULL.sums[QueueName(queue)].busiest == meter


def test_only_open_branches_have_lines_below_them() -> None:
    lines = FULL.lines(FULL.children[""], {"root", "right", "no such queue"})

    assert [(line.name, line.level, line.opened) for line in lines] == [
        ("lost", 1, False),
        ("root", 1, True),
        ("left", 2, False),
        ("right", 2, True),
        ("leaf", 3, False),
    ]


def test_queues_whose_parents_form_a_circle_have_sums_of_their_own_and_no_lines() -> None:
    tree = a_tree(a=("b", {"gpus": (1, 2)}), b=("a", {"gpus": (2, 2)}), c=("", {}))

    assert tree.sums[QueueName("a")].uses["gpus"].used == 1  # type: ignore[index]
    assert [line.name for line in tree.lines(tree.children[""], {"a", "b", "c"})] == ["c"]
    assert tree.path("a") == ["b", "a"]


def test_a_crowded_branch_is_cut_and_says_by_how_many() -> None:
    tree = a_tree(root=("", {}), **{f"q{number:04}": ("root", {}) for number in range(queue_tree.MOST_CHILDREN + 3)})
    lines = tree.lines(tree.children[""], {"root"})

    assert (len(lines), lines[0].more) == (1 + queue_tree.MOST_CHILDREN, 3)
