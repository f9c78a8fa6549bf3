"""Alibaba's GPU trace of 2023 itself, for the benchmark of packing: `packing --trace DIR`.

DIR has the `csv` files of https://github.com/alibaba/clusterdata, cluster-trace-gpu-v2023. A draw has a tenth of the
nodes with GPUs, and pods of a list, each as likely as any other, until they ask for 1.1 times the GPUs. When they came
and ended does not count, nor do pods without GPUs.
"""

from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

from admission.api import traces
from admission.api.traces import Row
from admission.conversion import openb
from admission.errors import Problem
from tests.bench import packing_worlds
from tests.bench.packing_worlds import NodeShape, Task, World

NODES = "openb_node_list_gpu_node.csv"
TENTH = 10
WITHOUT_TIMES = {"creation_time": "0"}
"""Some lists have no times."""
LISTS = {
    "as it is": "openb_pod_list_default.csv",
    "33 % of tasks name models": "openb_pod_list_gpuspec33.csv",
    "20 % by tasks of several": "openb_pod_list_multigpu20.csv",
    "50 % by tasks of several": "openb_pod_list_multigpu50.csv",
}
"""The pod lists by what the trace's page says of them; those that are not in the folder are left out."""


def draws(folder: Path, scale: int = 1) -> dict[str, partial[World]]:
    """Return how to draw worlds of each pod list. scale: how many tenths of the nodes."""
    nodes = _nodes(folder / NODES)
    found = {name: folder / file for name, file in LISTS.items() if (folder / file).exists()}
    assert found, f"{folder} has none of {', '.join(LISTS.values())}"
    return {name: partial(_draw, nodes, _kinds(path), scale) for name, path in found.items()}


def _draw(nodes: list[NodeShape], kinds: dict[Task, float], scale: int, seed: int) -> World:
    random = Random(seed)  # noqa: S311 - not for secrets
    return packing_worlds.drawn(random, random.sample(nodes, len(nodes) * scale // TENTH), kinds)


def _nodes(path: Path) -> list[NodeShape]:
    decoder = openb.Decoder()
    nodes = [node for node in decoder.nodes(_rows(path)) if node.gpus]
    found = [NodeShape(node.gpus, node.cpu, node.model, node.memory) for node in nodes]
    assert not decoder.problems, decoder.problems[:3]
    return found


def _kinds(path: Path) -> dict[Task, float]:
    decoder = openb.Decoder()
    rows = [Row(row.line, WITHOUT_TIMES | row.body) for row in _rows(path)]
    pods = [pod for pod in decoder.pods(rows) if pod.gpus]
    assert not decoder.problems, decoder.problems[:3]
    return dict(Counter(Task(pod.gpus, pod.share, pod.cpu, pod.models, pod.memory) for pod in pods))


def _rows(path: Path) -> list[Row]:
    problems: list[tuple[int, Problem]] = []
    rows = list(traces.csv_rows(path.read_text(), problems))
    assert not problems, problems[:3]
    return rows
