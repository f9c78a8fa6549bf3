"""How full nodes get of which some have cards that are given out in partitions: who takes whole cards of which nodes.

About a quarter of 40 nodes has cards as in `packing_partitions`, the others have cards that are given out whole only.
Tasks are drawn as there, those for partitions until they ask for the slices of compute of the former, those for whole
cards until they ask for 1.1 times those of the others, and come in any order.
"""

import statistics
from itertools import count
from random import Random
from typing import Any, NamedTuple

from rich.table import Table

from admission.dra.requests.gang_request import Choice
from tests.bench import packing, packing_partitions, shapes
from tests.bench.packing_partitions import CARDS, COMPUTE, CPUS, LOAD, NODES, Task

PARTITIONED = 0.25
"""How likely a node has cards that are given out in partitions."""
WHOLE = "7g"


class Given(NamedTuple):
    """The parts that were given away: of all slices, and of those that tasks for partitions and for cards asked for."""

    slices: float
    partitions: float
    cards: float


def draw(seed: int) -> tuple[list[bool], list[Task]]:
    """Return which nodes have cards with partitions, and tasks; the same seed has the same ones."""
    random = Random(seed)  # noqa: S311 - not for secrets
    partitioned = [random.random() < PARTITIONED for _ in range(NODES)]
    of_partitioned = sum(partitioned) * CARDS * COMPUTE
    left = {False: float(of_partitioned), True: (NODES * CARDS * COMPUTE - of_partitioned) * LOAD}
    tasks: list[Task] = []
    for more in count():
        for task in packing_partitions.draw(seed * 1000 + more).tasks:
            if left[task.profile == WHOLE] > 0:
                tasks.append(task)
                left[task.profile == WHOLE] -= task.asked
        if max(left.values()) <= 0:
            break
    random.shuffle(tasks)
    return partitioned, tasks


def played(seed: int, choice: Choice, *, strands_least: bool) -> Given:
    """Plan and grant the tasks one after the other."""
    partitioned, tasks = draw(seed)
    nodes = [shapes.cards(CARDS) if one else _whole() for one in partitioned]
    cluster = shapes.cluster(nodes, [{"cpu": str(CPUS)}] * NODES)
    gangs = [packing_partitions.demand(at, task) for at, task in enumerate(tasks)]
    beside, kinds_of_use = packing.companions(gangs, cluster) if strands_least else ({}, ())
    _, flags, _ = packing.planned(cluster, gangs, choice, beside, kinds_of_use)
    asked, given = {True: 0, False: 0}, {True: 0, False: 0}
    for task, is_given in zip(tasks, flags, strict=True):
        asked[task.profile == WHOLE] += task.asked
        given[task.profile == WHOLE] += task.asked * is_given
    slices = sum(given.values()) / (NODES * CARDS * COMPUTE)
    return Given(slices, given[False] / asked[False], given[True] / asked[True])


def _whole() -> tuple[list[shapes.Json], list[shapes.Json]]:
    """Return cards that are given out whole only."""
    attributes = {"profile": {"string": WHOLE}}
    return [{"name": f"card-{at}", "attributes": attributes} for at in range(CARDS)], []


def measure(*, draws: int) -> dict[str, Any]:
    """Return the parts that are given away, means over draws."""
    ways = {
        "fewest free": (Choice.FIRST_FIT, False),
        **{f"muster {choice.value}": (choice, True) for choice in Choice},
    }
    found = {
        name: [played(seed, choice, strands_least=strands_least) for seed in range(draws)]
        for name, (choice, strands_least) in ways.items()
    }
    given = {name: [*map(statistics.mean, zip(*each, strict=True))] for name, each in found.items()}
    return {"draws": draws, "nodes": NODES, "given": given, "each": found}


def table(result: dict[str, Any]) -> Table:
    """Return the result as a table."""
    found = Table(title=f"given away, {result['nodes']} nodes of {CARDS}, means of {result['draws']} draws")
    for column in ("order", "slices", "of partitions", "of cards"):
        found.add_column(column, justify="right")
    for name, means in result["given"].items():
        found.add_row(name, *(f"{value:.4f}" for value in means))
    return found
