"""How much is given away where tasks want devices of one PCIe root: Muster beside schedulers of the literature.

20 nodes have eight cards each, on two PCIe roots of four or four of two. Tasks ask for one, two or four cards; a part
of those of several ties them by `matchAttribute` to one root. They come at random, asking for 1.1 times the cards, and
end after a lognormal time; a task that finds no room is lost. Without ends nothing stays in pieces for long, as tasks
for one card fill what is left, in any order. How likely each sort of task is, is ours.

What counts is the part of the time of cards asked for that is given, of all tasks and of those that are tied. The
references place by best fit, and by fragmentation gradient descent (FGD) as in `packing_policies`, with the kinds of
tasks as they are drawn: of no use to a tied one are the cards of roots with fewer free cards than it wants. They take
the first free cards (as kube-scheduler does) or any.
"""

import heapq
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations_with_replacement
from random import Random
from typing import Any, NamedTuple

from rich.table import Table

from admission.api.kubernetes.nodes import Resources
from admission.api.snapshot import Snapshot
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.device_use import Holder
from admission.dra.requests.gang_request import Choice, Plan, PodDemand
from admission.dra.requests.kinds_of_use import KindsOfUse
from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.virtual_time import RunningGang, VirtualCluster
from admission.scheduling.cache.device_companions import DeviceCompanions
from tests.bench import packing, shapes

NODES, CARDS, CPUS = 20, 8, 128
ROOT = "resource.kubernetes.io/pcieRoot"
LOAD = 1.1
TASKS = 2_000
WARM_UP = 200
"""Tasks that do not count: the nodes are empty at first."""
SIZES = {1: 50, 2: 30, 4: 20}
"""Weights of the numbers of cards."""
CARD_CPUS = {4: 4, 8: 6, 16: 3}
"""Weights of CPUs beside each card."""
MIXES = {
    "2 roots of 4, 33 % tied": (2, 0.33),
    "4 roots of 2, 33 % tied": (4, 0.33),
    "2 roots of 4, all tied": (2, 1.0),
}
"""The roots of a node, and how many of the tasks of several cards that fit one are tied."""


class Task(NamedTuple):
    cards: int
    tied: bool
    cpus: int


class Job(NamedTuple):
    """A task that arrives and ends."""

    at: float
    runtime: float
    task: Task


class Node(NamedTuple):
    """Which cards are free, and CPUs. size: cards of a root."""

    free: tuple[bool, ...]
    cpus: int
    size: int

    @property
    def groups(self) -> tuple[int, ...]:
        """Return the free cards of each root."""
        return tuple(sum(self.free[at : at + self.size]) for at in range(0, CARDS, self.size))


class Given(NamedTuple):
    """The parts of the time of cards asked for that were given."""

    all: float
    tied: float
    others: float


def draw(seed: int, roots: int, tied: float) -> list[Job]:
    """Return jobs by arrival; the same seed has the same ones."""
    random = Random(seed)  # noqa: S311 - not for secrets
    mean = sum(cards * weight for cards, weight in SIZES.items()) / sum(SIZES.values())
    runtime = 1.6487  # the mean of lognormal times of median 1 with sigma 1
    rate, at, jobs = LOAD * NODES * CARDS / (mean * runtime), 0.0, list[Job]()
    for _ in range(TASKS):
        at += random.expovariate(rate)
        (cards,), (cpus,) = (
            random.choices([*SIZES], [*SIZES.values()]),
            random.choices([*CARD_CPUS], [*CARD_CPUS.values()]),
        )
        is_tied = 1 < cards <= CARDS // roots and random.random() < tied
        jobs.append(Job(at, random.lognormvariate(0, 1), Task(cards, is_tied, cards * cpus)))
    return jobs


def played(jobs: Sequence[Job], place: Callable[[int, Task], bool], end: Callable[[int], None]) -> Given:
    """Play arrivals and ends. place: start a job by its number, return whether it found room."""
    ends: list[tuple[float, int]] = []
    asked, given = Counter[bool](), Counter[bool]()
    for number, job in enumerate(jobs):
        while ends and ends[0][0] <= job.at:
            end(heapq.heappop(ends)[1])
        work = round(job.task.cards * job.runtime * 1e6) if number >= WARM_UP else 0
        asked[job.task.tied] += work
        if place(number, job.task):
            heapq.heappush(ends, (job.at + job.runtime, number))
            given[job.task.tied] += work
    return Given(given.total() / asked.total(), given[True] / asked[True], given[False] / asked[False])


# The references.

Rank = Callable[[Node, Node], float]
"""Returns how good it is to change a node into another one; the least is the best."""


def reference(jobs: Sequence[Job], roots: int, rank: Rank, placements: Callable[[Node, Task], Sequence[Node]]) -> Given:
    nodes = [Node((True,) * CARDS, CPUS, CARDS // roots)] * NODES
    running: dict[int, tuple[int, list[int], int]] = {}

    @cache
    def best(node: Node, task: Task) -> tuple[float, Node] | None:
        return min(((rank(node, after), after) for after in placements(node, task)), default=None)

    def place(number: int, task: Task) -> bool:
        ranked = [(*found, at) for at, node in enumerate(nodes) if (found := best(node, task)) is not None]
        if not ranked:
            return False
        _, after, at = min(ranked, key=lambda one: (one[0], one[2]))
        taken = [card for card in range(CARDS) if nodes[at].free[card] != after.free[card]]
        nodes[at], running[number] = after, (at, taken, task.cpus)
        return True

    def end(number: int) -> None:
        at, taken, cpus = running.pop(number)
        free = tuple(is_free or card in taken for card, is_free in enumerate(nodes[at].free))
        nodes[at] = nodes[at]._replace(free=free, cpus=nodes[at].cpus + cpus)

    return played(jobs, place, end)


def first_free(node: Node, task: Task) -> list[Node]:
    """Return the node with a task on the first free cards, of the first root that has as many if it is tied."""
    free = [card for card in range(CARDS) if node.free[card]]
    if task.tied:
        of_root = (at for at, count in enumerate(node.groups) if count >= task.cards)
        root = next(of_root, None)
        free = [card for card in free if card // node.size == root]
    return [_taken(node, task, free[: task.cards])] if len(free) >= task.cards and node.cpus >= task.cpus else []


def any_free(node: Node, task: Task) -> list[Node]:
    """Return the node with a task on any free cards, once for each number of cards of the roots."""
    found: list[Node] = []
    if node.cpus < task.cpus:
        return found
    for roots in combinations_with_replacement(range(len(node.groups)), task.cards):
        wanted = Counter(roots)
        if (task.tied and len(wanted) > 1) or any(node.groups[root] < count for root, count in wanted.items()):
            continue
        cards = [
            card
            for root, count in wanted.items()
            for card in [one for one in range(CARDS) if node.free[one] and one // node.size == root][:count]
        ]
        found.append(_taken(node, task, cards))
    return found


def _taken(node: Node, task: Task, cards: Sequence[int]) -> Node:
    free = tuple(is_free and card not in cards for card, is_free in enumerate(node.free))
    return node._replace(free=free, cpus=node.cpus - task.cpus)


def best_fit(_: Node, after: Node) -> float:
    """Least left on the node, of cards and CPUs."""
    return sum(after.free) / CARDS + after.cpus / CPUS


def fgd(jobs: Sequence[Job]) -> Rank:
    """Return the growth of the expected fragmentation of a node, with the kinds of tasks as they are drawn."""
    kinds = Counter(job.task for job in jobs)

    @cache
    def expected(groups: tuple[int, ...], cpus: int) -> float:
        return sum(weight * _unusable(groups, cpus, task) for task, weight in kinds.items()) / kinds.total()

    return lambda node, after: expected(after.groups, after.cpus) - expected(node.groups, node.cpus)


def _unusable(groups: tuple[int, ...], cpus: int, task: Task) -> int:
    """Return F_n(m): the free cards that a task cannot use."""
    if cpus < task.cpus or sum(groups) < task.cards:
        return sum(groups)
    return sum(count for count in groups if count < task.cards) if task.tied else 0


# Muster.


def muster(
    jobs: Sequence[Job], roots: int, choice: Choice, beside: Resources, kinds_of_use: KindsOfUse
) -> tuple[Given, float]:
    """Plan and grant the jobs as they come; return what was given, and milliseconds of the processor a job."""
    cluster = VirtualCluster(empty(roots))
    running: dict[int, RunningGang] = {}
    selectors = Selectors(cluster.cluster.profile.cel)
    start = time.process_time()

    def place(number: int, task: Task) -> bool:
        pod = demand(number, task)
        answer = gang_planner.plan(
            [pod],
            cluster.cluster,
            selectors=selectors,
            steps=packing.STEPS,
            choice=choice,
            mute=True,
            beside=beside,
            kinds_of_use=kinds_of_use,
        )
        if not isinstance(answer, Plan):
            return False
        holder = Holder(claim=f"team/{pod.pod.meta.name}", gang=pod.pod.meta.name)
        running[number] = RunningGang(
            uses=tuple((holder, uses) for uses in answer.uses.values()),
            requests=tuple((placed.node, pod.pod.requests) for placed in answer.pods),
        )
        cluster.move(arrived=[running[number]])
        return True

    def end(number: int) -> None:
        cluster.move(departed=[running.pop(number)])

    given = played(jobs, place, end)
    return given, (time.process_time() - start) * 1000 / len(jobs)


def empty(roots: int) -> ClusterState:
    """Return the empty cluster."""
    size = CARDS // roots
    cards = [{"name": f"gpu-{at}", "attributes": {ROOT: {"string": f"pci-{at // size}"}}} for at in range(CARDS)]
    return shapes.cluster([(cards, list[shapes.Json]())] * NODES, [{"cpu": str(CPUS)}] * NODES)


def demand(number: int, task: Task) -> PodDemand:
    """Return the only pod of a task's gang."""
    pod = packing.one_pod(f"task-{number:05}", shapes.request(task.cards), task.cpus)
    if not task.tied:
        return pod
    spec = {"devices": {"requests": [shapes.request(task.cards)], "constraints": [{"matchAttribute": ROOT}]}}
    return replace(pod, claims=(shapes.claim(pod.pod.meta.name, spec),))


def companions(jobs: Sequence[Job], cluster: ClusterState) -> tuple[Resources, KindsOfUse]:
    """Return what pods request beside each card, and what is tied, as the controller finds it with all jobs."""
    demands = [demand(number, job.task) for number, job in enumerate(jobs)]
    found = DeviceCompanions()
    snapshot = Snapshot(
        pods={one.pod.meta.uid: one.pod for one in demands},
        claims={claim.meta.key: claim for one in demands for claim in one.claims},
        classes=cluster.classes,
    )
    selectors = Selectors()
    return found.update(snapshot, selectors), found.kinds_of_use(selectors)


def measure(*, draws: int) -> dict[str, Any]:
    """Return the parts that are given, and milliseconds a gang, means over draws, for each mix of tasks."""
    return {"draws": draws, "nodes": NODES, "rows": {name: _row(*mix, draws) for name, mix in MIXES.items()}}


def _row(roots: int, tied: float, draws: int) -> dict[str, Any]:
    found: dict[str, list[Given]] = {}
    speeds: dict[str, list[float]] = {}
    for seed in range(draws):
        jobs = draw(seed, roots, tied)
        for name, rank in {"best fit": best_fit, "fgd": fgd(jobs)}.items():
            for way, placements in {"first free": first_free, "any free": any_free}.items():
                found.setdefault(f"{name}, {way}", []).append(reference(jobs, roots, rank, placements))
        beside, kinds_of_use = companions(jobs, empty(roots))
        for choice in Choice:
            for name, known in {"without a look at ties": (), "muster": kinds_of_use}.items():
                given, speed = muster(jobs, roots, choice, beside, known)
                found.setdefault(f"{name}, {choice.value}", []).append(given)
                speeds.setdefault(f"{name}, {choice.value}", []).append(speed)
    means = {name: Given(*map(statistics.mean, zip(*each, strict=True))) for name, each in found.items()}
    return {"given": means, "each": found, "ms_per_gang": {name: statistics.mean(one) for name, one in speeds.items()}}


def table(result: dict[str, Any]) -> Table:
    """Return the result as a table."""
    found = Table(title=f"card time given, {result['nodes']} nodes of {CARDS}, means of {result['draws']} draws")
    for column in ("tasks", "order", "all", "tied", "others", "ms a gang"):
        found.add_column(column, justify="right")
    for mix, row in result["rows"].items():
        for name, given in row["given"].items():
            speed = row["ms_per_gang"].get(name)
            found.add_row(mix, name, *(f"{value:.4f}" for value in given), "" if speed is None else f"{speed:.1f}")
    return found
