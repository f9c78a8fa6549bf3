"""Nodes that would have to come: `simulate` over 200 gangs of all sizes and four shapes, on a cluster with one node.

Goal (issue 28): two seconds of processor time for the whole simulation, with nodes that come, on one core; reading the
manifests is not part of it. The least of several rounds, since the machine is busy with other things too.
"""

import asyncio
import random
import time
from typing import Any

from rich.table import Table

from admission import heap
from admission.api.values import names
from admission.simulation import expand, offline
from admission.simulation.expand import Expanded
from admission.simulation.offline import Outcome

GOAL_S = 2.0
GANGS = 200
PODS, GPUS = (1, 1, 2, 4, 8), (1, 1, 2, 4, 8)
"""The sizes that are drawn: most gangs are small."""
SHAPES = {"large": (8, "31.50"), "older": (8, "28.00"), "half": (4, "16.10"), "one": (1, "4.20")}
"""GPUs and price per hour."""

Json = dict[str, Any]


def measure(rounds: int) -> Json:
    """Return the seconds of a simulation without shapes, with them, and with nodes that come."""
    given = _cluster(with_shapes=True)
    times = {
        "without shapes": _least(_cluster(with_shapes=False), rounds)[0],
        "gangs are told what they need": _least(given, rounds)[0],
    }
    times["nodes come"], outcome = _least(given, rounds, with_shapes=True)
    assert all(gang.verdict is offline.Verdict.ADMITTED for gang in outcome.gangs)
    return {"rounds": rounds, "s": times, "new": {one.shape: one.count for one in outcome.new_nodes}, "goal": GOAL_S}


def table(result: Json) -> Table:
    """Return what was measured, for people."""
    come = ", ".join(f"{count} {name}" for name, count in result["new"].items())
    made = Table(title=f"{GANGS} gangs, {len(SHAPES)} shapes ({come}); the least of {result['rounds']} rounds")
    for column in ("what", "s", "goal"):
        made.add_column(column, justify="left" if column == "what" else "right")
    for name, seconds in result["s"].items():
        made.add_row(name, f"{seconds:.2f}", f"{GOAL_S:g}")
    return made


def _least(given: Expanded, rounds: int, *, with_shapes: bool = False) -> tuple[float, Outcome]:
    found: list[tuple[float, Outcome]] = []
    # As the command does.
    with heap.frozen():
        for _ in range(rounds):
            began = time.process_time()
            outcome = asyncio.run(offline.simulate(given, with_shapes=with_shapes))
            found.append((time.process_time() - began, outcome))
    return min(found, key=lambda one: one[0])


def _cluster(*, with_shapes: bool) -> Expanded:
    drawn = random.Random(28)  # noqa: S311 - the same gangs in every run
    objects = [
        _object("v1", "Node", "node-0", status={"allocatable": _allocatable()}),
        _object("resource.k8s.io/v1", "DeviceClass", "gpu", spec={}),
        _own("Meter", "gpus", sources=[{"deviceClasses": ["gpu"], "count": {}}]),
        _own("Queue", "team", namespaceSelector={}, default=True, quotas=[{"meter": "gpus", "nominal": 100_000}]),
        *(_shape(name, gpus, price) for name, (gpus, price) in SHAPES.items() if with_shapes),
    ]
    for number in range(GANGS):
        objects += _job(f"job-{number:03}", drawn.choice(PODS), drawn.choice(GPUS))
    expanded = expand.expand(objects)
    assert not expanded.problems
    return expanded


def _object(version: str, kind: str, name: str, **more: Any) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}


def _own(kind: str, name: str, **spec: Any) -> Json:
    return _object(names.API_VERSION, kind, name, spec=spec)


def _allocatable() -> Json:
    return {"cpu": 64, "memory": "1Ti", "pods": 110}


def _shape(name: str, gpus: int, price: str) -> Json:
    devices = [{"name": f"gpu-{number}"} for number in range(gpus)]
    return _own(
        "NodeShape",
        name,
        maxCount=400,
        pricePerHour=price,
        matchLabels={"type": name},
        allocatable=_allocatable(),
        resourceSlices=[{"driver": "gpu.example.com", "devices": devices}],
    )


def _job(name: str, pods: int, gpus: int) -> list[Json]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": gpus}}
    template = {"spec": {"devices": {"requests": [request]}}}
    pod = {
        "containers": [{"name": "main", "image": "train"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}],
        "restartPolicy": "Never",
    }
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": pod}}
    return [
        _object("resource.k8s.io/v1", "ResourceClaimTemplate", name, spec=template),
        _object("batch/v1", "Job", name, spec=spec),
    ]
