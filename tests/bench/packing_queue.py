"""How long jobs wait in a cluster of shared GPUs, by the order in which nodes are tried.

A quarter of the nodes of `packing_worlds` is played in virtual time, as `muster simulate --arrivals` does. Tasks are
jobs that arrive as a Poisson process, so many that they ask for `load` times the GPUs, with lognormal runtimes of 15
minutes in the median, which they declare; they wait in one queue, with backfill. All but the order is the same.

Goal (issue 30): the mean wait with `least-stranded` not longer than with `fewest-free`.
"""

import math
import statistics
from dataclasses import replace
from random import Random
from typing import Any

from rich.table import Table

from admission.api import traces
from admission.api.traces import Arrival, Row
from admission.simulation import expand
from admission.simulation.expand import Expanded
from admission.simulation.replay import cluster, figures, player
from admission.simulation.replay.player import Policy
from tests.bench import packing, packing_worlds, shapes
from tests.bench.packing_worlds import World

LOADS = (0.9, 1.1)
JOBS = 1_500
NODES = 30
"""Of the 121 of a world."""
MEDIAN = 900.0
"""Seconds that half of the jobs run at most."""
SPREAD = 1.0
"""Sigma of the lognormal runtimes."""
STEPS = 50_000


def measure(draws: int) -> dict[str, Any]:
    """Return the mean waits in seconds, for each load and order: of each draw, and their mean."""
    rows: dict[str, dict[str, float]] = {}
    each: dict[str, list[float]] = {}
    for load in LOADS:
        for strands_least in (False, True):
            waits = [wait(seed, load, strands_least=strands_least) for seed in range(draws)]
            name = "least-stranded" if strands_least else "fewest-free"
            rows.setdefault(f"{load:g}", {})[name] = statistics.mean(waits)
            each[f"{load:g} {name}"] = waits
    return {"draws": draws, "jobs": JOBS, "nodes": NODES, "wait_mean_s": rows, "each": each}


def table(result: dict[str, Any]) -> Table:
    """Return the result as a table."""
    size, draws = f"{result['jobs']:,} jobs on {result['nodes']} nodes", result["draws"]
    found = Table(title=f"mean wait of {size}, seconds, means of {draws} draws")
    for column in ("load", "fewest-free", "least-stranded"):
        found.add_column(column, justify="right")
    for load, row in result["wait_mean_s"].items():
        found.add_row(load, *(f"{seconds:.1f}" for seconds in row.values()))
    return found


def wait(seed: int, load: float, *, strands_least: bool) -> float:
    """Return the mean wait of the jobs of one draw, in seconds."""
    drawn = packing_worlds.draw(seed)
    world = replace(drawn, nodes=drawn.nodes[:NODES])
    town = cluster.build_cluster(_town(world), steps=STEPS, strands_least=strands_least)
    found = figures.figures(player.replay(town, _arrivals(seed, world, load), Policy.MUSTER)).total
    assert found.jobs == found.started
    return found.wait.mean


def _town(world: World) -> Expanded:
    objects: list[shapes.Json] = [
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
        {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "Meter",
            "metadata": {"name": "gpus"},
            "spec": {"sources": [{"deviceClasses": ["gpu"], "count": {}}]},
        },
        {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": "q"},
            "spec": {"namespaceSelector": {}, "quotas": [{"meter": "gpus", "nominal": 10**6}]},
        },
    ]
    for at, node in enumerate(world.nodes):
        name = f"node-{at:05}"
        status = {"allocatable": {"cpu": f"{node.cpus}m", "pods": "110"}}
        objects.append({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})
        slice_ = shapes.slice_of(name, [packing.gpu(number) for number in range(node.gpus)])
        objects.append({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **slice_})
    found = expand.expand(objects)
    assert not found.problems, found.problems
    return found


def _arrivals(seed: int, world: World, load: float) -> tuple[Arrival, ...]:
    random = Random(seed)  # noqa: S311 - not for secrets
    kinds = [*world.weights]
    tasks = random.choices(kinds, [*world.weights.values()], k=JOBS)
    runtimes = [MEDIAN * math.exp(SPREAD * random.gauss(0, 1)) for _ in tasks]
    work = sum(task.asked * runtime for task, runtime in zip(tasks, runtimes, strict=True))
    pace = JOBS / (work / (world.capacity * load))
    now, rows = 0.0, list[Row]()
    for at, (task, runtime) in enumerate(zip(tasks, runtimes, strict=True), 1):
        now += random.expovariate(pace)
        claim = {"devices": {"requests": [packing.request(task)]}}
        row = {"name": f"j{at:05}", "queue": "q", "arrival": round(now, 3), "runtime": round(runtime, 3)}
        rows.append(Row(at, {**row, "requests": {"cpu": f"{task.cpus}m"}, "claims": [claim]}))
    found = traces.decode(rows)
    assert not found.problems, found.problems[:3]
    return found.arrivals
