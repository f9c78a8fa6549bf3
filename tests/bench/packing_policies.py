"""Schedulers of the literature that place one task after the other, as references for the benchmark of packing.

Each is written from its description in Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent", USENIX ATC 2023 (sections 4 to 6). A node is the thousandths that are left of each of
its GPUs, its CPUs and memory left, and the model of its GPUs: a task that asks for another one cannot use it.

The fragmentation of a node n for a task m, in thousandths of GPUs, is what m could not use of what is left there:

    F_n(m) = sum of R_g over all GPUs g of n                    if n does not take m
           = sum of R_g over those with R_g < part of m         else

where R_g is what is left of g. The expected fragmentation F_n(M) is the sum of p_m · F_n(m) over the kinds m of tasks,
p_m being how likely a task is of kind m. FGD places a task where F_n(M) grows the least.
"""

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from random import Random
from typing import NamedTuple

from tests.bench.packing_worlds import WHOLE, Task, World


class Node(NamedTuple):
    """What is left of each GPU, of CPUs, and of memory. model: of the GPUs."""

    gpus: tuple[int, ...]
    cpus: int
    model: str = ""
    memory: int = 0


Rank = tuple[float, ...]
Policy = Callable[[Node, Task], tuple[Rank, Node]]
"""Returns, for a node that takes a task, how good it is, the least is the best, and the node with it."""


def allocated(world: World, policy: Policy) -> float:
    """Return the part of the GPUs that is given away after all tasks; those that fit nowhere are skipped."""
    nodes = [Node((WHOLE,) * node.gpus, node.cpus, node.model, node.memory) for node in world.nodes]
    given = 0
    for task in world.tasks:
        ranked = [(*policy(node, task), at) for at, node in enumerate(nodes) if _takes(node, task)]
        if ranked:
            _, node, at = min(ranked, key=lambda one: (one[0], one[2]))
            nodes[at] = node
            given += task.asked
    return given / world.capacity


def repacked(world: World) -> float:
    """Return the same if all tasks that run could be moved for each that arrives, to any GPUs, and CPUs did not matter.

    Parts are packed by best fit, the largest first. Schedulers that move nothing stay below it, as far as is known.
    """
    gpus, whole, parts = world.capacity // WHOLE, 0, list[int]()
    for task in world.tasks:
        if task.part == WHOLE and whole + task.gpus + _packed(parts) <= gpus:
            whole += task.gpus
        elif task.part < WHOLE and whole + _packed([*parts, task.part]) <= gpus:
            parts.append(task.part)
    return (whole * WHOLE + sum(parts)) / world.capacity


def _packed(parts: Sequence[int]) -> int:
    """Return how many GPUs these parts need."""
    left: list[int] = []
    for part in sorted(parts, reverse=True):
        # Those with room are at the end, the one with the least first.
        at = bisect.bisect_left(left, part)
        rest = left.pop(at) - part if at < len(left) else WHOLE - part
        bisect.insort(left, rest)
    return len(left)


def policies(world: World, seed: int) -> Mapping[str, Policy]:
    """Return the policies by name."""
    random = Random(seed)  # noqa: S311 - not for secrets
    return {
        "random": lambda node, task: ((random.random(),), _tightest(node, task)),
        # Equal nodes are equally good for equal tasks, so each is looked at once.
        "best fit": cache(_best_fit),
        "gpu packing": cache(_gpu_packing),
        "fgd": cache(partial(_fgd, Fragmentation(world.weights))),
    }


class Fragmentation:
    """The expected fragmentation of nodes; equal nodes are computed once."""

    def __init__(self, weights: Mapping[Task, float]) -> None:
        self._weights = weights
        self._by_model: dict[str, tuple[dict[Task, float], float]] = {}
        """Of tasks that may use GPUs of a model how likely each kind is, whatever it asks for; and all others."""
        self._known: dict[Node, float] = {}

    def expected(self, node: Node) -> float:
        """Return F_n(M)."""
        key = node._replace(gpus=tuple(sorted(node.gpus)))
        if key not in self._known:
            usable, others = self._for_model(node.model)
            self._known[key] = sum(weight * _unusable(key, task) for task, weight in usable.items())
            self._known[key] += others * sum(node.gpus)
        return self._known[key]

    def _for_model(self, model: str) -> tuple[dict[Task, float], float]:
        if model not in self._by_model:
            found: dict[Task, float] = {}
            others = 0.0
            for task, weight in self._weights.items():
                if not task.models or model in task.models:
                    any_model = replace(task, models=())
                    found[any_model] = found.get(any_model, 0) + weight
                else:
                    others += weight
            self._by_model[model] = found, others
        return self._by_model[model]


def _unusable(node: Node, task: Task) -> int:
    """Return F_n(m)."""
    if not _takes(node, task):
        return sum(node.gpus)
    return sum(left for left in node.gpus if left < task.part)


def _takes(node: Node, task: Task) -> bool:
    if (task.models and node.model not in task.models) or node.cpus < task.cpus or node.memory < task.memory:
        return False
    return sum(left >= task.part for left in node.gpus) >= task.gpus


def _best_fit(node: Node, task: Task) -> tuple[Rank, Node]:
    """Least left on the node, of GPUs and CPUs as parts of the largest node's."""
    after = _tightest(node, task)
    return (sum(after.gpus) / (8 * WHOLE) + after.cpus / 128_000,), after


def _gpu_packing(node: Node, task: Task) -> tuple[Rank, Node]:
    """GPUs that are shared already first, then free ones of nodes in use, then free nodes."""
    after = _tightest(node, task)
    changed = [left for left, now in zip(node.gpus, after.gpus, strict=True) if left != now]
    begun = sum(left == WHOLE for left in changed)
    if not begun:
        return (0, sum(changed)), after
    return (2 if set(node.gpus) == {WHOLE} else 1, begun, len(node.gpus)), after


def _fgd(fragmentation: Fragmentation, node: Node, task: Task) -> tuple[Rank, Node]:
    """The least growth of the expected fragmentation."""
    before = fragmentation.expected(node)
    growth, after = min((fragmentation.expected(after) - before, after) for after in _placements(node, task))
    return (growth,), after


def _placements(node: Node, task: Task) -> Iterator[Node]:
    """Yield the node with a task on it, for each GPU that a part could be of."""
    if task.part == WHOLE:
        yield _tightest(node, task)
        return
    for at, left in enumerate(node.gpus):
        if left >= task.part:
            yield _taken(node, task, (at,))


def _tightest(node: Node, task: Task) -> Node:
    fitting = sorted((left, at) for at, left in enumerate(node.gpus) if left >= task.part)
    return _taken(node, task, [at for _, at in fitting[: task.gpus]])


def _taken(node: Node, task: Task, places: Sequence[int]) -> Node:
    gpus = tuple(left - task.part if at in places else left for at, left in enumerate(node.gpus))
    return node._replace(gpus=gpus, cpus=node.cpus - task.cpus, memory=node.memory - task.memory)
