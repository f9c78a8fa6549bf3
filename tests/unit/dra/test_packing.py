"""The benchmark of packing: its references keep their definitions, and Muster gives each GPU once."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from admission.dra.requests.gang_request import Choice
from tests.bench import packing, packing_policies, packing_worlds
from tests.bench.packing_policies import Fragmentation, Node, Policy
from tests.bench.packing_worlds import WHOLE, Task, World

HALF, ONE, TWO = Task(1, 500, 4), Task(1, WHOLE, 8), Task(2, WHOLE, 16)
WEIGHTS: Mapping[Task, float] = {HALF: 0.25, ONE: 0.5, TWO: 0.25}

FRAGMENTED = {
    "a node that all kinds can use has none": (Node((1000, 1000), 16), 0.0),
    "without CPUs all that is left is of no use": (Node((1000, 600), 3), 1600.0),
    "a part that is too small for a kind is lost to it": (Node((1000, 600), 16), 0.5 * 600 + 0.25 * 1600),
    "a kind that does not fit can use nothing": (Node((1000,), 8), 0.25 * 1000),
}


@pytest.mark.parametrize(("node", "expected"), FRAGMENTED.values(), ids=FRAGMENTED)
def test_expected_fragmentation(node: Node, expected: float) -> None:
    assert Fragmentation(WEIGHTS).expected(node) == expected


def policies() -> Mapping[str, Policy]:
    return packing_policies.policies(World((), (), WEIGHTS), 0)


NODES = (Node((1000, 1000, 1000, 1000), 64), Node((500, 1000), 32), Node((1000,), 32))


@pytest.mark.parametrize(
    ("name", "task", "best"),
    [("best fit", ONE, 2), ("gpu packing", HALF, 1), ("gpu packing", ONE, 1), ("fgd", HALF, 1), ("fgd", ONE, 1)],
)
def test_a_policy_prefers_the_node_of_its_definition(name: str, task: Task, best: int) -> None:
    policy = policies()[name]

    ranks = [policy(node, task)[0] for node in NODES]

    assert ranks.index(min(ranks)) == best


def test_fgd_gives_the_part_whose_rest_is_of_use() -> None:
    _, after = policies()["fgd"](Node((500, 900), 32), HALF)

    assert after.gpus == (0, 900)


def test_tasks_ask_for_what_is_published() -> None:
    weights = packing_worlds.weights()
    asked = sum(weight * task.asked for task, weight in weights.items())
    shared = sum(weight * task.asked for task, weight in weights.items() if task.part < WHOLE)

    assert sum(weights.values()) == pytest.approx(1)
    assert shared / asked == pytest.approx(0.285, abs=0.005)


def test_tasks_of_several_gpus_ask_for_the_part_that_is_wanted() -> None:
    weights = packing_worlds.weights(0.5)
    asked = sum(weight * task.asked for task, weight in weights.items())
    several = sum(weight * task.asked for task, weight in weights.items() if task.gpus > 1)

    assert several / asked == pytest.approx(0.5)


@pytest.mark.parametrize("choice", Choice)
def test_the_planner_fills_a_small_world_and_gives_nothing_twice(choice: Choice) -> None:
    drawn = packing_worlds.draw(1)
    world = replace(drawn, nodes=((4, 64), (2, 96)), tasks=drawn.tasks[:10])
    assert sum(task.asked for task in world.tasks) > world.capacity

    outcome = packing.played(world, choice)

    assert 0.8 < outcome.allocated <= 1
    assert outcome.twice == 0


def test_repacking_fills_cards_with_parts_that_came_apart() -> None:
    """Two parts of 0.6 came first; then 0.4 and 0.4 go beside them, and one more of 0.6 has no card."""
    six, four = Task(1, 600, 1), Task(1, 400, 1)

    assert packing_policies.repacked(World(((2, 8),), (six, six, four, four, six), {})) == 1.0
    assert packing_policies.repacked(World(((2, 8),), (six, six, six), {})) == 0.6
    assert packing_policies.repacked(World(((2, 8),), (Task(1, WHOLE, 1), four, Task(1, WHOLE, 1)), {})) == 0.7
