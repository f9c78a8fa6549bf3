"""Clusters and gangs for the benchmarks of the planner, of a few shapes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from admission.api.kubernetes import claims, devices, nodes, pods
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId
from admission.api.scheduling.scheduling_rules import REQUIRED
from admission.api.snapshot import Snapshot
from admission.dra.requests.gang_request import PodDemand
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from admission.workloads.kinds import jobset

DRIVER = "gpu.example.com"
HOST, RACK = "kubernetes.io/hostname", "example.com/rack"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster, and a gang for it. gang: made anew for each round, as it would be read from an API server."""

    cluster: ClusterState
    gang: Callable[[], list[PodDemand]]


def cluster(shapes: Sequence[tuple[list[Json], list[Json]]], allocatable: Sequence[Json] = ()) -> ClusterState:
    """Return a cluster with a node of each shape: devices, and sets of shared counters."""
    given = [{"status": {"allocatable": {"pods": "110", **one}}} for one in allocatable] or [Json()] * len(shapes)
    made = [nodes.decode({"metadata": {"name": f"node-{at:05}"}, **one}) for at, one in enumerate(given)]
    slices = {}
    for at, (shown, counters) in enumerate(shapes):
        for made_slice in slices_of(f"node-{at:05}", (shown, counters)):
            slices[made_slice["metadata"]["name"]] = devices.decode_slice(made_slice)
    cards = devices.decode_class(
        {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}}
    )
    snapshot = Snapshot(nodes={node.name: node for node in made}, slices=slices, classes={"gpu": cards})
    return cluster_state.build(snapshot, ())


def _slice(name: str, node: str, count: int, part: Json) -> Json:
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {"driver": DRIVER, "pool": pool, "nodeName": node, **part},
    }


def slices_of(node: str, shape: tuple[list[Json], list[Json]]) -> list[Json]:
    """Return the slices of a node: of its devices, and of its sets of shared counters if it has any."""
    shown, counters = shape
    parts: list[Json] = [{"devices": shown}, *([{"sharedCounters": counters}] if counters else [])]
    return [_slice(f"slice-{node}-{at}", node, len(parts), part) for at, part in enumerate(parts)]


def slice_of(node: str, shown: list[Json]) -> Json:
    """Return the only slice of a node, with some devices."""
    return _slice(node, node, 1, {"devices": shown})


def whole(count: int) -> tuple[list[Json], list[Json]]:
    """Return GPUs of two NUMA nodes."""
    return [
        {
            "name": f"gpu-{at}",
            "attributes": {"numa": {"int": at * 2 // count}, "memory": {"int": 80}, "uuid": {"string": f"uuid-{at}"}},
        }
        for at in range(count)
    ], []


PROFILES = {"1g": (1, range(7)), "2g": (2, (0, 2, 4)), "3g": (4, (0, 4)), "4g": (4, (0,)), "7g": (8, (0,))}
"""Of each profile the slices of memory, and where they may begin."""


def cards(count: int) -> tuple[list[Json], list[Json]]:
    """Return the partitions of cards, with 7 slices of compute and 8 of memory each, and their counters."""
    given: list[Json] = []
    for card in range(count):
        for profile, (memory, starts) in PROFILES.items():
            for start in starts:
                slices = {f"memory-{at}": {"value": "1"} for at in range(start, start + memory)}
                drawn = {"compute": {"value": profile[0]}, **slices}
                given.append(
                    {
                        "name": f"card-{card}-{profile}-{start}",
                        "attributes": {"profile": {"string": profile}},
                        "consumesCounters": [{"counterSet": f"card-{card}", "counters": drawn}],
                    }
                )
    memory_slices = {f"memory-{at}": {"value": "1"} for at in range(8)}
    sets = [{"name": f"card-{at}", "counters": {"compute": {"value": "7"}, **memory_slices}} for at in range(count)]
    return given, sets


def shareable(count: int) -> tuple[list[Json], list[Json]]:
    """Return GPUs of 80Gi of memory that several claims may share."""
    capacity = {"memory": {"value": "80Gi", "requestPolicy": {"default": "1Gi"}}}
    return [{"name": f"gpu-{at}", "allowMultipleAllocations": True, "capacity": capacity} for at in range(count)], []


def profile_is(profile: str) -> str:
    """Return the selector of a partition."""
    return f"device.attributes['{DRIVER}'].profile == '{profile}'"


def request(count: int, *selectors: str) -> Json:
    """Return a request for so many devices."""
    given = [{"cel": {"expression": text}} for text in selectors]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, "selectors": given}
    return {"name": "gpu", "exactly": exactly}


def share(memory: str) -> Json:
    """Return a request for a share of one device."""
    wanted = request(1)
    return {**wanted, "exactly": {**wanted["exactly"], "capacity": {"requests": {"memory": memory}}}}


def alternative(name: str, count: int) -> Json:
    """Return one way to serve a request, by so many devices."""
    return {"name": name, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}


def gang(count: int, request: Json, *, name: str = "pod", constraints: Sequence[Json] = ()) -> list[PodDemand]:
    """Return so many pods with a claim of one request each."""
    spec = {"devices": {"requests": [request], "constraints": list(constraints)}}
    return [pod(f"{name}-{at}", spec) for at in range(count)]


def sized(wanted: Sequence[tuple[int, int]]) -> list[PodDemand]:
    """Return pods for so many GPUs each. wanted: devices, and how many pods."""
    numbered = enumerate(wanted)
    return [pod for at, (size, count) in numbered for pod in gang(count, request(size), name=f"pod-{at}")]


def partitioned(wanted: Sequence[tuple[str, int]]) -> list[PodDemand]:
    """Return pods for a partition each. wanted: profiles, and how many pods."""
    return [pod for size, count in wanted for pod in gang(count, request(1, profile_is(size)), name=size)]


def pod(name: str, spec: Json, **requests: str) -> PodDemand:
    """Return a pod with one claim. requests: of CPU and the like."""
    meta = {"name": name, "namespace": "team", "uid": name}
    container = {"name": "main", "resources": {"requests": requests}}
    return PodDemand(
        pod=pods.decode({"metadata": meta, "spec": {"containers": [container]} if requests else {}}),
        claims=(claim(name, spec),),
    )


def claim(name: str, spec: Json) -> Claim:
    """Return a claim that is not allocated."""
    meta = {"name": name, "namespace": "team", "uid": f"claim-{name}"}
    return claims.decode({"metadata": meta, "spec": spec})


def device_ids(cluster: ClusterState) -> list[DeviceId]:
    """Return all devices of a cluster."""
    return [
        listed.id
        for node_inventory in cluster.node_inventories.values()
        for pool in node_inventory.pools
        for listed in pool.listed_devices
    ]


def in_racks(cluster: ClusterState, size: int) -> ClusterState:
    """Return a cluster whose nodes are labelled by name, and by racks of so many nodes each."""
    given = {
        name: replace(node, meta=replace(node.meta, labels={HOST: name, RACK: f"rack-{at // size}"}))
        for at, (name, node) in enumerate(cluster.nodes.items())
    }
    return replace(cluster, nodes=given)


def ruled(demand: PodDemand, labels: dict[str, str], *, apart: Sequence[tuple[str, dict[str, str]]]) -> PodDemand:
    """Return a pod with labels and required anti-affinity. apart: labels of nodes, each with labels of pods."""
    terms = [{"topologyKey": key, "labelSelector": {"matchLabels": matched}} for key, matched in apart]
    return _with_affinity(demand, labels, {"podAntiAffinity": {REQUIRED: terms}})


def exclusive(demand: PodDemand, job: str) -> PodDemand:
    """Return the first pod of a Job that wants a rack of its own."""
    key = jobset.job_key(demand.pod.meta.namespace, job)
    return _with_affinity(demand, {jobset.JOB_KEY: key}, jobset.exclusive_affinity(RACK, key))


def _with_affinity(demand: PodDemand, labels: dict[str, str], affinity: Json) -> PodDemand:
    meta = demand.pod.meta
    named = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid, "labels": labels}
    return replace(demand, pod=pods.decode({"metadata": named, "spec": {"affinity": affinity}}))
