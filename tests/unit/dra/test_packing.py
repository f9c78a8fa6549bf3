"""The benchmark of packing: its references keep their definitions, and Muster gives each GPU once."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from admission.dra.requests.gang_request import Choice
from admission.dra.requests.kinds_of_use import Tie
from tests.bench import (
    packing,
    packing_partitions,
    packing_policies,
    packing_queue,
    packing_roots,
    packing_trace,
    packing_worlds,
)
from tests.bench.packing_partitions import Card
from tests.bench.packing_policies import Fragmentation, Node, Policy
from tests.bench.packing_worlds import WHOLE, NodeShape, Task, World

SAMPLE = Path(__file__).parents[3] / "config" / "examples" / "openb"
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


def test_tasks_ask_for_models_of_which_there_are_nodes_that_are_large_enough() -> None:
    weights = packing_worlds.weights(named=0.33)

    assert sum(weight for task, weight in weights.items() if task.models) == pytest.approx(0.33)
    assert {task.models for task in weights if task.gpus == 8} == {(), ("g2",), ("g3",)}


def test_what_asks_for_another_model_is_of_no_use_to_a_task() -> None:
    node, other = Node((1000, 600), 16, "g2"), replace(ONE, models=("t4",))
    fragmentation = Fragmentation({HALF: 0.5, other: 0.25, replace(ONE, models=("g2", "g3")): 0.25})

    assert fragmentation.expected(node) == 0.25 * 1600 + 0.25 * 600


def test_cards_with_partitions_keep_the_places_of_their_profiles() -> None:
    (after, *_), card = packing_partitions._places(Card(), "3g"), Card()

    assert len(packing_partitions._places(card, "1g")) == 7
    assert [len(packing_partitions._places(after, profile)) for profile in ("7g", "4g", "3g", "2g")] == [0, 0, 1, 1]


@pytest.mark.parametrize("choice", Choice)
def test_the_planner_fills_a_small_world_and_gives_nothing_twice(choice: Choice) -> None:
    drawn = packing_worlds.draw(1)
    world = replace(drawn, nodes=(NodeShape(4, 64_000), NodeShape(2, 96_000)), tasks=drawn.tasks[:10])
    assert sum(task.asked for task in world.tasks) > world.capacity

    outcome = packing.played(world, choice)

    assert 0.8 < outcome.allocated <= 1
    assert outcome.twice == 0


def test_worlds_of_lists_in_the_form_of_the_trace_have_its_nodes_and_pods_with_gpus() -> None:
    (draw,) = packing_trace.draws(SAMPLE, scale=10).values()
    world = draw(0)

    assert sorted(world.nodes) == [NodeShape(4, 48_000, "A10", 262_144)] * 2 + [NodeShape(8, 96_000, "L40", 524_288)]
    assert Task(1, 250, 2_000, ("A10", "L40"), 8_192) in world.weights
    assert sum(world.weights.values()) == 11
    assert sum(task.asked for task in world.tasks) >= 1.1 * world.capacity
    outcome = packing.played(world, Choice.FREE)
    assert 0 < outcome.allocated <= 1
    assert outcome.twice == 0
    fgd = packing_policies.policies(world, 0)["fgd"]
    assert 0 < packing_policies.allocated(world, fgd) <= 1


def test_a_task_needs_the_memory_that_is_left() -> None:
    world = World((NodeShape(2, 8, memory=3),), (Task(1, WHOLE, 1, memory=2),) * 2, {})

    assert packing_policies.allocated(world, policies()["best fit"]) == 0.5


def test_repacking_fills_cards_with_parts_that_came_apart() -> None:
    """Two parts of 0.6 came first; then 0.4 and 0.4 go beside them, and one more of 0.6 has no card."""
    six, four = Task(1, 600, 1), Task(1, 400, 1)

    assert packing_policies.repacked(World((NodeShape(2, 8),), (six, six, four, four, six), {})) == 1.0
    assert packing_policies.repacked(World((NodeShape(2, 8),), (six, six, six), {})) == 0.6
    assert packing_policies.repacked(World((NodeShape(2, 8),), (Task(1, WHOLE, 1), four, Task(1, WHOLE, 1)), {})) == 0.7


def test_a_queueing_trace_is_played_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many more jobs at once than the nodes take."""
    monkeypatch.setattr(packing_queue, "JOBS", 40)
    monkeypatch.setattr(packing_queue, "NODES", 6)

    assert packing_queue.wait(0, 20, strands_least=True) > 0


@pytest.mark.parametrize("choice", Choice)
def test_partitions_of_a_small_world_are_given_away(choice: Choice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing_partitions, "NODES", 2)
    world = packing_partitions.draw(1)

    found = {**packing_partitions.references(world, 1), "muster": packing_partitions.played(world, choice).allocated}

    assert all(0.7 < given <= 1 for given in found.values()), found


def test_a_tied_task_cannot_use_roots_with_fewer_cards_than_it_wants() -> None:
    tied, loose = packing_roots.Task(3, True, 3), packing_roots.Task(3, False, 3)

    assert [packing_roots._unusable((2, 3), cpus, task) for task in (tied, loose) for cpus in (8, 2)] == [2, 5, 0, 5]


def test_the_references_take_the_first_free_cards_or_any() -> None:
    node = packing_roots.Node((False, True, True, True, True, True, True, True), 64, 4)
    tied = packing_roots.Task(4, True, 4)

    assert [after.groups for after in packing_roots.first_free(node, tied)] == [(3, 0)]
    assert [after.groups for after in packing_roots.any_free(node, tied._replace(cards=2))] == [(1, 4), (3, 2)]
    assert len(packing_roots.any_free(node, tied._replace(tied=False))) == 4


@pytest.mark.parametrize("choice", Choice)
def test_tied_tasks_of_a_small_world_come_and_go(choice: Choice, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"NODES": 2, "TASKS": 60, "WARM_UP": 5}.items():
        monkeypatch.setattr(packing_roots, name, value)
    jobs = packing_roots.draw(1, 2, 1.0)
    beside, kinds = packing_roots.companions(jobs, packing_roots.empty(2))
    ties = [kind for kind in kinds if isinstance(kind, Tie)]
    assert [(tie.devices, tie.attribute) for tie in ties] == [(2, packing_roots.ROOT), (4, packing_roots.ROOT)]

    given, _ = packing_roots.muster(jobs, 2, choice, beside, kinds)
    reference = packing_roots.reference(jobs, 2, packing_roots.fgd(jobs), packing_roots.any_free)

    assert all(0.5 < one.all <= 1 and 0 < one.tied <= 1 for one in (given, reference)), (given, reference)
