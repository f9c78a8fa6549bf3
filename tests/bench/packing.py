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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from admission.api.kubernetes import devices, pods
from admission.api.kubernetes.nodes import Resources
from admission.api.snapshot import Snapshot
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.gang_request import Choice, Plan, PodDemand
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from admission.scheduling.cache.device_companions import DeviceCompanions
from tests.bench import packing_policies, packing_worlds, shapes
from tests.bench.packing_worlds import WHOLE, Task, World

STEPS = 50_000
"""The controller's default."""
CAPACITY = "part"
MULTI = (0.0, 0.2, 0.5)
"""Parts of all GPUs asked for that tasks of several GPUs ask for; 0 for that of the trace."""
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


def measure(*, draws: int, scale: int = 1) -> dict[str, Any]:
    """Return means over draws, for each share of tasks of several GPUs."""
    rows = {f"{multi:g}": _row(multi, draws, scale) for multi in MULTI}
    return {"draws": draws, "scale": scale, "nodes": sum(packing_worlds.NODES.values()) * scale, "rows": rows}


def table(result: dict[str, Any]) -> Table:
    """Return the result as a table."""
    rows = result["rows"]
    found = Table(title=f"GPUs given away, {result['nodes']} nodes, means of {result['draws']} draws")
    for column in ("tasks of several GPUs", *next(iter(rows.values()))["allocated"], "ms a gang"):
        found.add_column(column, justify="right")
    for multi, row in rows.items():
        shares = [f"{value:.4f}" for value in row["allocated"].values()]
        speeds = " ".join(f"{value:.1f}" for value in row["ms_per_gang"].values())
        found.add_row("as in the trace" if multi == "0" else f"{float(multi):.0%}", *shares, speeds)
    return found


def _row(multi: float, draws: int, scale: int) -> dict[str, Any]:
    shares: dict[str, list[float]] = {}
    speeds: dict[str, list[float]] = {}
    for seed in range(draws):
        world = packing_worlds.draw(seed, scale=scale, multi=multi)
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
    cluster = state(world)
    selectors = Selectors(cluster.profile.cel)
    gangs = [demand(at, task) for at, task in enumerate(world.tasks)]
    beside = companions(gangs) if strands_least else {}
    gc.collect()
    start = time.process_time()
    given: list[Task] = []
    for task, pod in zip(world.tasks, gangs, strict=True):
        answer = gang_planner.plan(
            [pod], cluster, selectors=selectors, steps=STEPS, choice=choice, mute=True, beside=beside
        )
        if isinstance(answer, Plan):
            cluster = cluster_state.granted(cluster, answer, {pod.pod.meta.uid: pod.pod}, pod.pod.meta.name)
            given.append(task)
    seconds = time.process_time() - start
    return Outcome(
        sum(task.asked for task in given) / world.capacity, seconds, len(gangs), _given_twice(cluster, given)
    )


def companions(gangs: Sequence[PodDemand]) -> Resources:
    """Return what the pods request beside each GPU, as the controller finds it in a snapshot with all of them."""
    claims = {claim.meta.key: claim for gang in gangs for claim in gang.claims}
    demanding = {gang.pod.meta.uid: gang.pod for gang in gangs}
    gpu = devices.decode_slice(shapes.slice_of("one", [_gpu(0)]))
    return DeviceCompanions().update(Snapshot(pods=demanding, claims=claims, slices={"one": gpu}))


def state(world: World) -> ClusterState:
    """Return the empty cluster of a world."""
    shown = [([_gpu(at) for at in range(gpus)], list[shapes.Json]()) for gpus, _ in world.nodes]
    return shapes.cluster(shown, [{"cpu": str(cpus)} for _, cpus in world.nodes])


def demand(number: int, task: Task) -> PodDemand:
    """Return the only pod of a task's gang."""
    wanted = shapes.request(task.gpus)
    request = {**wanted, "exactly": {**wanted["exactly"], "capacity": {"requests": {CAPACITY: str(task.part)}}}}
    name = f"task-{number:05}"
    container = {"name": "main", "resources": {"requests": {"cpu": str(task.cpus)}}}
    spec = {"containers": [container], "resourceClaims": [{"name": "gpus", "resourceClaimName": name}]}
    pod = pods.decode({"metadata": {"name": name, "namespace": "team", "uid": name}, "spec": spec})
    return PodDemand(pod=pod, claims=(shapes.claim(name, {"devices": {"requests": [request]}}),))


def _gpu(at: int) -> shapes.Json:
    return {"name": f"gpu-{at}", "allowMultipleAllocations": True, "capacity": {CAPACITY: {"value": str(WHOLE)}}}


def _given_twice(cluster: ClusterState, given: Sequence[Task]) -> int:
    """Return how many GPUs have more shares than there is of them, after a look at what all shares are together."""
    sums = [sum(one.share[CAPACITY] for one in shares if one.share) for shares in cluster.shares.values()]
    assert sum(sums) == sum(task.asked for task in given), "what was given is not what is in use"
    return sum(amount > WHOLE for amount in sums)
