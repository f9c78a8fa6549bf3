"""Clusters and tasks in the shape of Alibaba's GPU trace of 2023, for the benchmark of packing.

Published of it (Weng et al., "Beware of Fragmentation", USENIX ATC 2023, table 1 and section 6.1): 1,213 nodes have
6,212 GPUs, most of them in nodes of eight; of the tasks with GPUs 43.6 % ask for a part of one, 55.4 % for one, and one
in a hundred for two, four or eight. Tasks that share ask for 28.5 % of all that is asked for, which is 0.56 of a GPU in
the mean. Nodes of eight GPUs have 96 or 128 CPUs, and the trace's page shows tasks with 4 CPUs for a part of a GPU, 16
for one and 88 for eight. Of its GPUs 71 % are of one model, and traces with 10, 20, 25 and 33 % of tasks that ask for
models are made of it. How parts and CPUs spread around these figures, the smaller nodes, which models these have, and
that tasks ask for models as there are GPUs of each, is ours. Nothing is copied from the trace; the same seed has the
same world.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from random import Random
from typing import NamedTuple

WHOLE = 1_000
"""A GPU, in thousandths."""

MOST_GPUS = 8
"""Of a node, and of a task."""

MODELS = {
    (8, 96): {"g2": 46},
    (8, 128): {"g2": 8, "g3": 4},
    (4, 64): {"t4": 6, "v100": 6},
    (2, 96): {"t4": 24, "p100": 12},
    (1, 32): {"p100": 15},
}
"""Nodes by their GPUs and CPUs, and of these by model: 121 with 599 GPUs, a tenth of the trace's."""

SIZES = {0: 0.4360, 1: 0.5536, 2: 0.0023, 4: 0.0023, 8: 0.0058}
"""Of tasks with GPUs, how many they ask for; 0 is a part of one."""

PARTS = {100: 3, 220: 8, 250: 4, 350: 8, 470: 12, 500: 20, 620: 10, 700: 8, 810: 12, 910: 13}
"""Weights of the parts that are asked for; 562 in the mean."""

CPUS = {4: 2, 8: 3, 12: 3, 16: 4}
"""Weights of the CPUs that tasks ask for beside each GPU; tasks of eight ask for 11."""

PART_CPUS = {2: 1, 4: 4, 6: 3, 8: 3, 12: 1}
"""The same beside a part of one."""

LOAD = 1.1
"""Tasks are drawn until they ask for so many times the GPUs that there are."""


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """A demand for some GPUs of one node, for so many thousandths of each of them, for CPUs, and for MiB of memory.

    cpus: in thousandths. models: of which GPUs one it has to be; empty for any.
    """

    gpus: int
    part: int
    cpus: int
    models: tuple[str, ...] = ()
    memory: int = 0

    @property
    def asked(self) -> int:
        """Return the thousandths of GPUs that are asked for in all."""
        return self.gpus * self.part


class NodeShape(NamedTuple):
    """The GPUs of a node, thousandths of CPUs, and MiB of memory. model: of its GPUs."""

    gpus: int
    cpus: int
    model: str = ""
    memory: int = 0


@dataclass(frozen=True, slots=True)
class World:
    """tasks: in the order of arrival. weights: how likely each kind of task is."""

    nodes: tuple[NodeShape, ...]
    tasks: tuple[Task, ...]
    weights: Mapping[Task, float]

    @property
    def capacity(self) -> int:
        """Return the thousandths of GPUs that there are."""
        return sum(node.gpus for node in self.nodes) * WHOLE


def weights(multi: float = 0.0, named: float = 0.0) -> dict[Task, float]:
    """Return how likely a task is of each kind.

    multi: the part of all GPUs asked for that tasks of several ask for; 0 for that of the trace. named: the part of the
    tasks that ask for a model, each as likely as there are GPUs of it in nodes that are large enough.
    """
    sizes = dict(SIZES)
    if multi:
        asked = {gpus: part * (gpus or _mean()) for gpus, part in sizes.items()}
        several = sum(amount for gpus, amount in asked.items() if gpus > 1)
        factor = multi / (1 - multi) * (sum(asked.values()) - several) / several
        sizes |= {gpus: part * factor for gpus, part in sizes.items() if gpus > 1}
    total = sum(sizes.values())
    found: dict[Task, float] = {}
    for gpus, size in sizes.items():
        parts = {WHOLE: 1} if gpus else PARTS
        cpus = PART_CPUS if not gpus else CPUS if gpus < MOST_GPUS else {11: 1}
        for (part, weight), (each, share) in product(parts.items(), cpus.items()):
            task = Task(gpus or 1, part, (gpus or 1) * each * 1000)
            likely = size / total * weight / sum(parts.values()) * share / sum(cpus.values())
            for model, asks in _models(gpus or 1, named).items():
                one = replace(task, models=(model,) if model else ())
                found[one] = found.get(one, 0) + likely * asks
    return found


def _models(gpus: int, named: float) -> dict[str, float]:
    """Return how likely a task of so many GPUs asks for each model, or for none."""
    if not named:
        return {"": 1.0}
    there: dict[str, int] = {}
    for (size, _), models in MODELS.items():
        for model, nodes in models.items() if size >= gpus else ():
            there[model] = there.get(model, 0) + nodes * size
    return {"": 1 - named, **{model: named * count / sum(there.values()) for model, count in there.items()}}


def draw(seed: int, *, scale: int = 1, multi: float = 0.0, named: float = 0.0) -> World:
    """Return a world. scale: how many times the nodes. multi, named: see `weights`."""
    random = Random(seed)  # noqa: S311 - not for secrets
    nodes = [
        NodeShape(gpus, cpus * 1000, model)
        for (gpus, cpus), models in MODELS.items()
        for model, count in models.items()
        for _ in range(count * scale)
    ]
    random.shuffle(nodes)
    return drawn(random, nodes, weights(multi, named))


def drawn(random: Random, nodes: Sequence[NodeShape], kinds: Mapping[Task, float]) -> World:
    """Return nodes with tasks that are drawn until they ask for LOAD times the GPUs. kinds: how likely each is."""
    tasks: list[Task] = []
    left = sum(node.gpus for node in nodes) * WHOLE * LOAD
    while left > 0:
        (task,) = random.choices([*kinds], [*kinds.values()])
        tasks.append(task)
        left -= task.asked
    return World(tuple(nodes), tuple(tasks), kinds)


def _mean() -> float:
    return sum(part * weight for part, weight in PARTS.items()) / sum(PARTS.values()) / WHOLE
