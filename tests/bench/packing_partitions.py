"""How full cards with partitions get: Muster's planner beside schedulers of the literature, on the same tasks.

40 nodes have four cards each, which are given out in MIG profiles of an A100: 7 slices of compute, 8 of memory, and for
each profile the slices of memory where it may begin (`shapes.PROFILES`). Tasks ask for one partition, or for one card
or more, and for CPUs; how likely each is, is ours. They are drawn until they ask for 1.1 times the slices of compute,
and planned as in `packing`. For Muster each way to divide a card is a device that draws on the counters of the card, as
in NVIDIA's driver.

The references are those of `packing_policies`, with a partition in place of a part of a GPU: what is left of a card is
its free slices of compute, of which a task can use those of cards that still have a place for its profile.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, NamedTuple

from rich.table import Table

from admission.dra.requests.gang_request import Choice, PodDemand
from tests.bench import packing, shapes
from tests.bench.packing import Outcome

NODES, CARDS, CPUS = 40, 4, 64
COMPUTE, MEMORY = 7, 8
"""Slices of a card."""
LOAD = 1.1
KINDS = {("1g", 1): 40, ("2g", 1): 22, ("3g", 1): 16, ("4g", 1): 7, ("7g", 1): 12, ("7g", 2): 2, ("7g", 4): 1}
"""Weights of profiles, and how many of them a task asks for."""
SLICE_CPUS = {1: 4, 2: 6, 3: 3}
"""Weights of the CPUs that tasks ask for beside each slice."""


class Task(NamedTuple):
    """A demand for partitions of one profile on one node, and for CPUs."""

    profile: str
    partitions: int
    cpus: int

    @property
    def each(self) -> int:
        """Return the slices of compute of a partition."""
        return int(self.profile[0])

    @property
    def asked(self) -> int:
        return self.partitions * self.each


class Card(NamedTuple):
    """The free slices of compute, and by bits those of memory."""

    compute: int = COMPUTE
    memory: int = (1 << MEMORY) - 1


class Node(NamedTuple):
    """What is left of each card, and CPUs."""

    cards: tuple[Card, ...] = (Card(),) * CARDS
    cpus: int = CPUS


@dataclass(frozen=True, slots=True)
class World:
    """tasks: in the order of arrival. weights: how likely each kind of task is."""

    tasks: tuple[Task, ...]
    weights: Mapping[Task, float]


def draw(seed: int) -> World:
    """Return a world; the same seed has the same one."""
    random = Random(seed)  # noqa: S311 - not for secrets
    weights = {
        Task(profile, count, count * int(profile[0]) * each): float(weight * share)
        for (profile, count), weight in KINDS.items()
        for each, share in SLICE_CPUS.items()
    }
    tasks: list[Task] = []
    left = NODES * CARDS * COMPUTE * LOAD
    while left > 0:
        (task,) = random.choices([*weights], [*weights.values()])
        tasks.append(task)
        left -= task.asked
    total = sum(weights.values())
    return World(tuple(tasks), {task: weight / total for task, weight in weights.items()})


Rank = Callable[[Node, Node], tuple[float, ...]]
"""Returns how good it is to change a node into another one; the least is the best."""


def measure(*, draws: int) -> dict[str, Any]:
    """Return the part of the slices that is given away by each scheduler, and milliseconds a gang; means over draws."""
    shares: dict[str, list[float]] = {}
    speeds: dict[str, list[float]] = {}
    for seed in range(draws):
        world = draw(seed)
        for name, given in references(world, seed).items():
            shares.setdefault(name, []).append(given)
        shares.setdefault("fewest free", []).append(played(world, Choice.FIRST_FIT, strands_least=False).allocated)
        for choice in Choice:
            outcome = played(world, choice)
            shares.setdefault(f"muster {choice.value}", []).append(outcome.allocated)
            speeds.setdefault(choice.value, []).append(outcome.seconds * 1000 / outcome.gangs)
    return {
        "draws": draws,
        "nodes": NODES,
        "allocated": {name: statistics.mean(found) for name, found in shares.items()},
        "each": shares,
        "ms_per_gang": {name: statistics.mean(found) for name, found in speeds.items()},
    }


def table(result: dict[str, Any]) -> Table:
    """Return the result as a table."""
    found = Table(title=f"slices given away, {result['nodes']} nodes of {CARDS}, means of {result['draws']} draws")
    for column in (*result["allocated"], "ms a gang"):
        found.add_column(column, justify="right")
    speeds = " ".join(f"{value:.1f}" for value in result["ms_per_gang"].values())
    found.add_row(*(f"{value:.4f}" for value in result["allocated"].values()), speeds)
    return found


# The references.


def references(world: World, seed: int) -> dict[str, float]:
    """Return the part of the slices that each reference gives away."""
    random = Random(seed)  # noqa: S311 - not for secrets
    fragmentation = cache(lambda node: sum(weight * _unusable(node, task) for task, weight in world.weights.items()))

    def growth(node: Node, after: Node) -> tuple[float, ...]:
        return (fragmentation(after) - fragmentation(node),)

    def best_fit(_: Node, after: Node) -> tuple[float, ...]:
        return (sum(card.compute for card in after.cards) / (CARDS * COMPUTE) + after.cpus / CPUS,)

    def packing(node: Node, after: Node) -> tuple[float, ...]:
        changed = [card for card, now in zip(node.cards, after.cards, strict=True) if card != now]
        begun = sum(card.compute == COMPUTE for card in changed)
        if not begun:
            return (0, sum(card.compute for card in changed))
        return (2 if all(card.compute == COMPUTE for card in node.cards) else 1, begun)

    ranks = {"random": lambda _node, _after: (random.random(),), "best fit": best_fit, "gpu packing": packing}
    return {name: _played(world, rank) for name, rank in {**ranks, "fgd": growth}.items()}


def _played(world: World, rank: Rank) -> float:
    nodes, given = [Node()] * NODES, 0
    for task in world.tasks:
        ranked = [
            ((*rank(node, after), *_tightness(node, after), at), after)
            for at, node in enumerate(nodes)
            for after in _placements(node, task)
        ]
        if ranked:
            (*_, place), after = min(ranked)
            nodes[int(place)] = after
            given += task.asked
    return given / (NODES * CARDS * COMPUTE)


def _unusable(node: Node, task: Task) -> int:
    """Return F_n(m): the slices of cards that have no place for a task, or all if it does not fit the node."""
    usable = [card.compute for card in node.cards if _places(card, task.profile)]
    fits = node.cpus >= task.cpus and len(usable) >= task.partitions
    return sum(card.compute for card in node.cards) - (sum(usable) if fits else 0)


def _tightness(node: Node, after: Node) -> tuple[int, int]:
    """Of equally good placements the one on the card with the least left, and the one that blocks the least."""
    changed = [(card, now) for card, now in zip(node.cards, after.cards, strict=True) if card != now]
    profiles = shapes.PROFILES
    left = sum(len(_places(now, profile)) * int(profile[0]) for _, now in changed for profile in profiles)
    return sum(card.compute for card, _ in changed), -left


def _placements(node: Node, task: Task) -> Iterator[Node]:
    if node.cpus < task.cpus:
        return
    if task.partitions > 1:
        free = [at for at, card in enumerate(node.cards) if card == Card()][: task.partitions]
        if len(free) == task.partitions:
            cards = tuple(Card(0, 0) if at in free else card for at, card in enumerate(node.cards))
            yield Node(cards, node.cpus - task.cpus)
        return
    for at, card in enumerate(node.cards):
        for after in _places(card, task.profile):
            yield Node((*node.cards[:at], after, *node.cards[at + 1 :]), node.cpus - task.cpus)


@cache
def _places(card: Card, profile: str) -> tuple[Card, ...]:
    """Return a card with a partition at each place where one may begin."""
    size, starts = shapes.PROFILES[profile]
    compute = card.compute - int(profile[0])
    masks = [((1 << size) - 1) << start for start in starts]
    return tuple(Card(compute, card.memory & ~mask) for mask in masks if compute >= 0 and card.memory & mask == mask)


# Muster.


def played(world: World, choice: Choice, *, strands_least: bool = True) -> Outcome:
    """Plan and grant the tasks of a world one after the other."""
    cluster = shapes.cluster([shapes.cards(CARDS)] * NODES, [{"cpu": str(CPUS)}] * NODES)
    gangs = [demand(at, task) for at, task in enumerate(world.tasks)]
    beside, kinds_of_use = packing.companions(gangs, cluster) if strands_least else ({}, ())
    _, flags, seconds = packing.planned(cluster, gangs, choice, beside, kinds_of_use)
    given = sum(task.asked for task, is_given in zip(world.tasks, flags, strict=True) if is_given)
    return Outcome(given / (NODES * CARDS * COMPUTE), seconds, len(gangs), 0)


def demand(number: int, task: Task) -> PodDemand:
    """Return the only pod of a task's gang."""
    request = shapes.request(task.partitions, shapes.profile_is(task.profile))
    return packing.one_pod(f"task-{number:05}", request, task.cpus * 1000)
