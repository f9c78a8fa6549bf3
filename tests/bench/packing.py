"""How full a cluster gets: Muster's planner beside schedulers of the literature, on the same tasks.

Worlds are those of `packing_worlds`, references those of `packing_policies`. For Muster each GPU is a device with a
capacity of a thousand parts that several claims may share, and each task a gang of one pod with one claim. Tasks are
planned and granted one after the other, as an admission cycle does; those that have no plan are skipped. What pods
request beside each device is known to the order of nodes as the controller knows it: of all tasks together. `fewest
free` is the planner with `controller.node_order` set so.

Goals (issue 30): the part that is given away at least FGD's where kube-scheduler picks the devices (`Pin`), and half a
point more where Muster does (`Allocate`).
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from admission.api.kubernetes import pods
from admission.api.kubernetes.nodes import Resources
from admission.api.snapshot import Snapshot
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.gang_request import Choice, Plan, PodDemand
from admission.dra.requests.kinds_of_use import KindsOfUse
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from admission.scheduling.cache.device_companions import DeviceCompanions
from tests.bench import packing_policies, packing_trace, packing_worlds, shapes
from tests.bench.packing_worlds import WHOLE, Task, World

STEPS = 50_000
"""The controller's default."""
CAPACITY = "part"
MIXES = {
    "as published": {},
    "20 % by tasks of several": {"multi": 0.2},
    "50 % by tasks of several": {"multi": 0.5},
    "33 % of tasks name a model": {"named": 0.33},
    "the same, 50 % by tasks of several": {"named": 0.33, "multi": 0.5},
}
"""The mixes of tasks: see `packing_worlds.weights`."""
Draw = Callable[[int], World]
"""Returns the world of a seed."""
REFERENCE = "fgd"
GOALS = {Choice.FIRST_FIT: 0.0, Choice.FREE: 0.005}
"""How much more is given away than by the reference, at least."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """allocated: the part of the GPUs that is given away. seconds: of the processor. twice: GPUs given too often."""

    allocated: float
    seconds: float
    gangs: int
    twice: int


def measure(*, draws: int, scale: int = 1, trace: Path | None = None) -> dict[str, Any]:
    """Return means over draws, for each mix of tasks. trace: a folder with the trace itself; see `packing_trace`."""
    worlds: Mapping[str, Draw] = (
        {name: _draw_of(mix, scale) for name, mix in MIXES.items()}
        if trace is None
        else packing_trace.draws(trace, scale)
    )
    rows = {name: _row(draw, draws) for name, draw in worlds.items()}
    nodes = {len(draw(0).nodes) for draw in worlds.values()}
    return {"draws": draws, "scale": scale, "nodes": max(nodes), "rows": rows}


def table(result: dict[str, Any]) -> Table:
    """Return the result as a table."""
    rows = result["rows"]
    found = Table(title=f"GPUs given away, {result['nodes']} nodes, means of {result['draws']} draws")
    for column in ("GPUs asked for", *next(iter(rows.values()))["allocated"], "ms a gang"):
        found.add_column(column, justify="right")
    for name, row in rows.items():
        shares = [f"{value:.4f}" for value in row["allocated"].values()]
        speeds = " ".join(f"{value:.1f}" for value in row["ms_per_gang"].values())
        found.add_row(name, *shares, speeds)
    return found


def _draw_of(mix: Mapping[str, float], scale: int) -> Draw:
    return lambda seed: packing_worlds.draw(seed, scale=scale, **mix)


def _row(draw: Draw, draws: int) -> dict[str, Any]:
    shares: dict[str, list[float]] = {}
    speeds: dict[str, list[float]] = {}
    for seed in range(draws):
        world = draw(seed)
        for name, policy in packing_policies.policies(world, seed).items():
            shares.setdefault(name, []).append(packing_policies.allocated(world, policy))
        shares.setdefault("repacked", []).append(packing_policies.repacked(world))
        before = played(world, Choice.FIRST_FIT, strands_least=False)
        shares.setdefault("fewest free", []).append(before.allocated)
        for choice in Choice:
            outcome = played(world, choice)
            assert not outcome.twice, f"{outcome.twice} GPUs were given twice"
            shares.setdefault(f"muster {choice.value}", []).append(outcome.allocated)
            speeds.setdefault(choice.value, []).append(outcome.seconds * 1000 / outcome.gangs)
    means = {name: statistics.mean(found) for name, found in shares.items()}
    more = {choice.value: means[f"muster {choice.value}"] - means[REFERENCE] for choice in Choice}
    return {
        "allocated": means,
        "draws": shares,
        "ms_per_gang": {name: statistics.mean(found) for name, found in speeds.items()},
        "more_than_fgd": more,
        "met": {choice.value: more[choice.value] >= goal for choice, goal in GOALS.items()},
    }


def played(world: World, choice: Choice, *, strands_least: bool = True) -> Outcome:
    """Plan and grant the tasks of a world one after the other."""
    gangs = [demand(at, task) for at, task in enumerate(world.tasks)]
    cluster = state(world)
    beside, kinds_of_use = companions(gangs, cluster) if strands_least else ({}, ())
    cluster, flags, seconds = planned(cluster, gangs, choice, beside, kinds_of_use)
    given = [task for task, is_given in zip(world.tasks, flags, strict=True) if is_given]
    return Outcome(
        sum(task.asked for task in given) / world.capacity, seconds, len(gangs), _given_twice(cluster, given)
    )


def planned(
    cluster: ClusterState,
    gangs: Sequence[PodDemand],
    choice: Choice,
    beside: Resources,
    kinds_of_use: KindsOfUse,
) -> tuple[ClusterState, list[bool], float]:
    """Plan and grant gangs of one pod; return the state after them, which were granted, and the processor's seconds."""
    selectors, flags = Selectors(cluster.profile.cel), list[bool]()
    gc.collect()
    start = time.process_time()
    for pod in gangs:
        answer = gang_planner.plan(
            [pod],
            cluster,
            selectors=selectors,
            steps=STEPS,
            choice=choice,
            mute=True,
            beside=beside,
            kinds_of_use=kinds_of_use,
        )
        flags.append(isinstance(answer, Plan))
        if isinstance(answer, Plan):
            cluster = cluster_state.granted(cluster, answer, {pod.pod.meta.uid: pod.pod}, pod.pod.meta.name)
    return cluster, flags, time.process_time() - start


def companions(gangs: Sequence[PodDemand], cluster: ClusterState) -> tuple[Resources, KindsOfUse]:
    """Return what the pods request beside each GPU, and what else tells nodes apart, as the controller finds it."""
    claims = {claim.meta.key: claim for gang in gangs for claim in gang.claims}
    demanding = {gang.pod.meta.uid: gang.pod for gang in gangs}
    slices = {one.meta.name: one for inventory in cluster.node_inventories.values() for one in inventory.sources}
    snapshot = Snapshot(pods=demanding, claims=claims, slices=slices, classes=cluster.classes)
    found, selectors = DeviceCompanions(), Selectors()
    return found.update(snapshot, selectors), found.kinds_of_use(selectors)


def state(world: World) -> ClusterState:
    """Return the empty cluster of a world."""
    shown = [([gpu(at, node.model) for at in range(node.gpus)], list[shapes.Json]()) for node in world.nodes]
    return shapes.cluster(shown, [_amounts(node.cpus, node.memory) for node in world.nodes])


def demand(number: int, task: Task) -> PodDemand:
    """Return the only pod of a task's gang."""
    return one_pod(f"task-{number:05}", request(task), task.cpus, task.memory)


def one_pod(name: str, request: shapes.Json, cpus: int, memory: int = 0) -> PodDemand:
    """Return a pod with a claim of one request, thousandths of CPUs, and MiB of memory."""
    container = {"name": "main", "resources": {"requests": _amounts(cpus, memory)}}
    spec = {"containers": [container], "resourceClaims": [{"name": "gpus", "resourceClaimName": name}]}
    pod = pods.decode({"metadata": {"name": name, "namespace": "team", "uid": name}, "spec": spec})
    return PodDemand(pod=pod, claims=(shapes.claim(name, {"devices": {"requests": [request]}}),))


def _amounts(cpus: int, memory: int) -> shapes.Json:
    return {"cpu": f"{cpus}m", **({"memory": f"{memory}Mi"} if memory else {})}


def request(task: Task) -> shapes.Json:
    """Return the request of a task's claim."""
    names = ", ".join(f"'{model}'" for model in task.models)
    selector = f"device.attributes['{shapes.DRIVER}'].model in [{names}]"
    wanted = shapes.request(task.gpus, *([selector] if names else []))
    return {**wanted, "exactly": {**wanted["exactly"], "capacity": {"requests": {CAPACITY: str(task.part)}}}}


def gpu(at: int, model: str = "") -> shapes.Json:
    """Return a GPU that several claims may share."""
    shared = {"allowMultipleAllocations": True, "capacity": {CAPACITY: {"value": str(WHOLE)}}}
    return {"name": f"gpu-{at}", "attributes": {"model": {"string": model}}, **shared}


def _given_twice(cluster: ClusterState, given: Sequence[Task]) -> int:
    """Return how many GPUs have more shares than there is of them, after a look at what all shares are together."""
    sums = [sum(one.share[CAPACITY] for one in shares if one.share) for shares in cluster.shares.values()]
    assert sum(sums) == sum(task.asked for task in given), "what was given is not what is in use"
    return sum(amount > WHOLE for amount in sums)
