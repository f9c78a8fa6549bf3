"""How fast the allocator is, how that grows with the cluster, and what it keeps in memory.

Goals (issue 4), in one process on one core: one pod with a claim for 8 GPUs on a known node ≤ 100 µs; over 5,000 nodes
with 8 GPUs each, which nodes take a pod ≤ 5 ms after the first time; 40,000 devices in ≤ 400 MiB in all. Growth is the
exponent of processor time over size, from the smallest to the largest size: 1 is linear, 2 would be quadratic.
"""

import gc
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from rich.table import Table

from admission.api.kubernetes import claims, devices, nodes, pods
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import Slice
from admission.api.snapshot import Snapshot
from admission.api.values.names import NodeName
from admission.cel import programs
from admission.dra import gang_planner
from admission.dra.allocator.node_allocator import Allocated, NotHere
from admission.dra.allocator.pod_allocator import Allocator, Question
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.device_use import DeviceUse, Holder
from admission.dra.requests.gang_request import Plan, PodDemand
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState

DRIVER = "gpu.example.com"
GPUS = 8
NODES = 5_000
STEPS = 100_000
GOALS = {
    "allocate_us": 100.0,
    "allocate_anew_us": 100.0,
    "fits_again_ms": 5.0,
    "fits_after_claim_ms": 5.0,
    "fits_after_slice_ms": 5.0,
    "mib": 400.0,
}


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster with something to ask of it."""

    snapshot: Snapshot
    cluster: ClusterState
    selectors: Selectors
    question: Question

    def allocator(self, cluster: ClusterState | None = None) -> Allocator:
        return Allocator(cluster or self.cluster, selectors=self.selectors, steps=STEPS)


def measure(*, rounds: int) -> dict[str, Any]:
    """Return medians over rounds, growth exponents, and the memory of a process with 40,000 devices."""
    # The grammar of CEL is built once in a process.
    programs.compile_device("true")
    scene = _scene(NODES)
    numbers = _numbers(scene, rounds)
    numbers["mib"] = _memory()
    return {
        "nodes": NODES,
        "devices": NODES * GPUS,
        "rounds": rounds,
        "numbers": numbers,
        "goals": GOALS,
        "met": {name: numbers[name] <= goal for name, goal in GOALS.items()},
        "growth": _growth(),
        "blow_ups": _blow_ups(),
    }


def table(result: dict[str, Any]) -> Table:
    """Return what was measured, for people."""
    shown = Table(title=f"Allocator over {result['nodes']} nodes of {GPUS} GPUs, medians of {result['rounds']} rounds")
    for column in ("", "measured", "goal", ""):
        shown.add_column(column, justify="right")
    for name, number in result["numbers"].items():
        goal = result["goals"].get(name)
        met = "" if goal is None else "met" if result["met"][name] else "missed"
        shown.add_row(name.replace("_", " "), f"{number:.2f}", "" if goal is None else f"{goal:.0f}", met)
    shown.add_section()
    for name, exponent in result["growth"].items():
        shown.add_row(f"growth: {name}", f"{exponent:.2f}", "", "")
    shown.add_section()
    for name, answer in result["blow_ups"].items():
        shown.add_row(name, answer, "", "")
    return shown


def _numbers(scene: Scene, rounds: int) -> dict[str, float]:
    allocator = scene.allocator()
    first = _once(lambda: allocator.nodes(scene.question))
    names = list(scene.cluster.nodes)
    found = {
        "fits_first_ms": first * 1e3,
        "fits_again_ms": _median(rounds, lambda _: allocator.nodes(scene.question)) * 1e3,
        "allocate_us": _median(rounds, lambda at: _ask_all(allocator, scene.question, names[at * 100 : at * 100 + 100]))
        * 1e4,
        "allocate_anew_us": _unseen(scene, rounds) * 1e6,
    }
    after = [_taken(scene.cluster, scene.question, allocator, name) for name in names[:rounds]]
    found["fits_after_claim_ms"] = _median(rounds, lambda at: scene.allocator(after[at]).nodes(scene.question)) * 1e3
    changed = [_changed(scene.snapshot, name) for name in names[:rounds]]
    renewed: list[ClusterState] = []
    found["world_after_slice_ms"] = (
        _median(rounds, lambda at: renewed.append(cluster_state.build(changed[at], (), before=scene.cluster))) * 1e3
    )
    found["fits_after_slice_ms"] = _median(rounds, lambda at: scene.allocator(renewed[at]).nodes(scene.question)) * 1e3
    fork = allocator.fork()
    fork.assume(
        [
            DeviceUse(listed.id)
            for listed in scene.question.signatures_by_node.layout(NodeName(names[0])).listed_devices[:1]
        ]
    )
    found["fits_in_a_fork_ms"] = _median(rounds, lambda _: fork.nodes(scene.question)) * 1e3
    return found


def _unseen(scene: Scene, rounds: int) -> float:
    """Return the seconds of one allocation for which nothing is remembered of a search."""
    allocator, names = scene.allocator(), list(scene.cluster.nodes)
    allocator.nodes(scene.question)

    def hundred(at: int) -> None:
        for name in names[at * 100 : at * 100 + 100]:
            scene.question.answers.clear()
            allocator.allocate(scene.question, name)

    return _median(rounds, hundred) / 100


def _ask_all(allocator: Allocator, question: Question, names: Iterable[NodeName]) -> None:
    for name in names:
        found = allocator.allocate(question, name)
        assert isinstance(found, Allocated)


def _taken(cluster: ClusterState, question: Question, allocator: Allocator, name: NodeName) -> ClusterState:
    found = allocator.allocate(question, name)
    assert isinstance(found, Allocated)
    return cluster_state.with_devices(cluster, found.uses[0], Holder(claim="team/other"))


def _changed(snapshot: Snapshot, name: NodeName) -> Snapshot:
    """Return the snapshot with one device gone from a node's slice."""
    before = snapshot.slices[name]
    meta = replace(before.meta, resource_version="2")
    return replace(snapshot, slices={**snapshot.slices, name: replace(before, devices=before.devices[1:], meta=meta)})


def _growth() -> dict[str, float]:
    """Return how time grows with the size of each thing."""
    return {
        "nodes: world": _exponent(
            (1_000, 2_000, 4_000), lambda n: _timed(_snapshot(n), lambda s: cluster_state.build(s, ()))
        ),
        "nodes: first answer": _exponent((1_000, 2_000, 4_000), _first),
        "slices of one node": _exponent(
            (100, 200, 400), lambda n: _timed(_snapshot(1, n), lambda s: cluster_state.build(s, ()))
        ),
        "slices by node selector": _exponent(
            (500, 1_000, 2_000), lambda n: _timed(_snapshot(n, selected=True), lambda s: cluster_state.build(s, ()))
        ),
        "claims in use": _exponent((4_000, 8_000, 16_000), _allocated),
        "pods of a gang": _exponent((240, 480, 960), _planned),
    }


def _exponent(sizes: tuple[int, ...], seconds: Callable[[int], float]) -> float:
    times = [statistics.median(seconds(size) for _ in range(3)) for size in sizes]
    return math.log(times[-1] / times[0]) / math.log(sizes[-1] / sizes[0])


def _first(count: int) -> float:
    scene = _scene(count)
    return _once(lambda: scene.allocator().nodes(scene.question))


def _allocated(count: int) -> float:
    """Return the seconds to make a world of a cluster in which so many devices are allocated."""
    snapshot = _snapshot(count // GPUS)
    held = [_held(NodeName(name), at) for name in snapshot.nodes for at in range(GPUS)]
    return _timed(
        replace(snapshot, claims={claim.meta.key: claim for claim in held}), lambda s: cluster_state.build(s, ())
    )


def _planned(count: int) -> float:
    cluster = cluster_state.build(_snapshot(count // GPUS), ())
    demands = [_demand(f"pod-{at}") for at in range(count)]
    selectors = Selectors(cluster.profile.cel)
    answer: list[object] = []
    seconds = _once(lambda: answer.append(gang_planner.plan(demands, cluster, selectors=selectors, steps=STEPS)))
    assert isinstance(answer[0], Plan)
    return seconds


def _blow_ups() -> dict[str, str]:
    """Return how searches end that would try every subset, were equal devices not recognised as such."""
    root = "resource.kubernetes.io/pcieRoot"
    scattered = cluster_state.build(_snapshot(1, devices=64, roots=64), ())
    equal = cluster_state.build(_snapshot(1, devices=33, roots=3), ())
    wide = {
        "name": "r",
        "firstAvailable": [
            {"name": f"a{at}", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 8 - at}
            for at in range(8)
        ],
    }
    cases = {
        "16 of 33 equal devices, 11 on each root": (equal, [_request("r", 16)], [{"matchAttribute": root}]),
        "2 of 64 devices, no two on one root": (scattered, [_request("r", 2)], [{"matchAttribute": root}]),
        "32 requests with 8 alternatives each": (
            cluster_state.build(_snapshot(1, devices=31), ()),
            [{**wide, "name": f"r{at}"} for at in range(32)],
            [],
        ),
    }
    return {name: _blown(*case) for name, case in cases.items()}


def _blown(cluster: ClusterState, requests: list[dict[str, Any]], constraints: list[dict[str, Any]]) -> str:
    spec = {"devices": {"requests": requests, "constraints": constraints}}
    claim = claims.decode({"metadata": {"name": "c", "namespace": "team", "uid": "c"}, "spec": spec})
    allocator = Allocator(cluster, selectors=Selectors(cluster.profile.cel), steps=STEPS)
    question = allocator.parsed([claim])
    assert isinstance(question, Question)
    answers: list[object] = []
    seconds = _once(lambda: answers.append(allocator.allocate(question, NodeName("node-00000"))))
    assert isinstance(answers[0], NotHere)
    return f"proved impossible in {seconds * 1e3:.1f} ms"


def _memory() -> float:
    """Return the MiB of a new process that holds 40,000 devices and has answered."""
    command = [sys.executable, "-c", "from tests.bench import allocator; allocator.hold()"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def hold() -> None:
    """Hold 40,000 devices, ask which nodes take a pod, and print this process's MiB."""
    scene = _scene(NODES)
    scene.allocator().nodes(scene.question)
    gc.collect()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _scene(count: int) -> Scene:
    snapshot = _snapshot(count)
    cluster = cluster_state.build(snapshot, ())
    selectors = Selectors(cluster.profile.cel)
    question = _question(
        Allocator(cluster, selectors=selectors, steps=STEPS), f"device.attributes['{DRIVER}'].model == 'h100'"
    )
    return Scene(snapshot, cluster, selectors, question)


def _question(allocator: Allocator, selector: str) -> Question:
    found = allocator.parsed([_claim("claim", GPUS, selector)])
    assert isinstance(found, Question)
    return found


def _snapshot(count: int, slices: int = 1, *, devices: int = GPUS, roots: int = 2, selected: bool = False) -> Snapshot:
    made = [_node(at) for at in range(count)]
    found = [_slice(node.name, at, slices, devices, roots, selected) for node in made for at in range(slices)]
    classes = {"gpu": _class()}
    return Snapshot(
        nodes={node.name: node for node in made}, slices={one.meta.name: one for one in found}, classes=classes
    )


def _node(at: int) -> nodes.Node:
    name = f"node-{at:05}"
    status = {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110"}}
    return nodes.decode({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": status})


def _slice(node: str, at: int, slices: int, count: int, roots: int, selected: bool) -> Slice:  # noqa: PLR0917
    name = node if slices == 1 else f"{node}-{at:04}"
    by_label = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    place: dict[str, Any] = (
        {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [by_label]}]}} if selected else {"nodeName": node}
    )
    spec = {
        "driver": DRIVER,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": slices},
        "devices": [_device(at * count + number, node, number * roots // count) for number in range(count)],
        **place,
    }
    return devices.decode_slice({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": spec})


def _device(at: int, node: str, root: int) -> dict[str, Any]:
    return {
        "name": f"gpu-{at}",
        "attributes": {
            "model": {"string": "h100"},
            "uuid": {"string": f"GPU-{node}-{at}"},
            "index": {"int": at},
            "driverVersion": {"version": "550.54.15"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{root:02x}"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def _class() -> devices.DeviceClass:
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    return devices.decode_class({"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})


def _request(name: str, count: int, *selectors: str) -> dict[str, Any]:
    chosen = [{"cel": {"expression": text}} for text in selectors]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, "selectors": chosen}
    return {"name": name, "exactly": exactly}


def _claim(name: str, count: int, *selectors: str, **status: Any) -> Claim:
    spec = {"devices": {"requests": [_request("gpus", count, *selectors)]}}
    return claims.decode({"metadata": {"name": name, "namespace": "team", "uid": name}, "spec": spec, "status": status})


def _held(node: NodeName, at: int) -> Claim:
    result = {"request": "gpus", "driver": DRIVER, "pool": node, "device": f"gpu-{at}"}
    return _claim(f"held-{node}-{at}", 1, allocation={"devices": {"results": [result]}})


def _demand(name: str) -> PodDemand:
    pod = pods.decode({"metadata": {"name": name, "namespace": "team", "uid": name}, "spec": {}})
    return PodDemand(pod=pod, claims=(_claim(f"{name}-gpu", 1),))


def _timed(given: Snapshot, run: Callable[[Snapshot], object]) -> float:
    return _once(lambda: run(given))


def _median(rounds: int, run: Callable[[int], object]) -> float:
    return statistics.median(_once(lambda at=at: run(at)) for at in range(rounds))  # type: ignore[misc]


def _once(run: Callable[[], object]) -> float:
    """Return the processor seconds of a run, without those of the garbage collector, which looks at all there is."""
    gc.collect()
    gc.disable()
    started = time.process_time()
    run()
    taken = time.process_time() - started
    gc.enable()
    return taken
