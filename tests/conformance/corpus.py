"""Recorded questions and answers of Kubernetes' own allocator, as worlds and gangs.

The whole corpus stands beside the repository in some places; a part of it travels with the repository, compressed.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from admission.api.kubernetes import claims, devices, nodes, pods
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId
from admission.api.snapshot import Snapshot
from admission.api.values import quantities
from admission.dra import compatibility
from admission.dra.compatibility import Features, Release, SchedulerProfile
from admission.dra.inventory import counters
from admission.dra.requests.device_use import Holder, Shared
from admission.dra.requests.gang_request import PodDemand
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState

ROOT = Path(__file__).parents[2]
WHOLE = ROOT.parent / "shared" / "corpus"
PART = Path(__file__).parent / "data"

RELEASES = (Release.V1_36, Release.V1_37)
"""Those whose answers are recorded."""

OTHERS = Holder(claim="others/claim")

Record = dict[str, Any]


def records(name: str) -> Iterator[Record]:
    """Yield the records of a file: the whole one where it is there, else the part that travels with us."""
    whole = WHOLE / f"{name}.jsonl"
    if whole.exists():
        with whole.open() as lines:
            yield from map(json.loads, lines)
    elif (PART / f"{name}.jsonl.gz").exists():
        with gzip.open(PART / f"{name}.jsonl.gz", "rt") as lines:
            yield from map(json.loads, lines)


def answer(record: Record, release: Release) -> Record:
    """Return what a release of Kubernetes answers."""
    newer: Record | None = record.get("expect137") if release is Release.V1_37 else None
    older: Record = record["expect"]
    return older if newer is None else newer


def profile(record: Record, release: Release) -> SchedulerProfile:
    """Return the profile of a record: its gates, in a release."""
    gates = record["features"]
    features = Features(
        admin_access=gates["AdminAccess"],
        prioritized_list=gates["PrioritizedList"],
        partitionable=gates["PartitionableDevices"],
        taints=gates["DeviceTaints"],
        binding_conditions=gates["DeviceBindingAndStatus"],
        consumable_capacity=gates["ConsumableCapacity"],
        list_attributes=gates["ListTypeAttributes"],
    )
    return compatibility.profile(release, features)


def cluster(record: Record, release: Release = Release.V1_37) -> ClusterState:
    made = [nodes.decode(node) for node in record.get("nodes") or [record["node"]]]
    snapshot = Snapshot(
        nodes={node.name: node for node in made},
        slices={str(at): devices.decode_slice(one) for at, one in enumerate(record["slices"])},
        classes={one["metadata"]["name"]: devices.decode_class(one) for one in record["classes"]},
    )
    return replace(
        cluster_state.build(snapshot, (), profile=profile(record, release)),
        taken={_device(one): OTHERS for one in record["allocated"]},
        shares=_shares(record),
    )


def _shares(record: Record) -> dict[DeviceId, tuple[Shared, ...]]:
    """Return the shares of others: one without amounts for each, and one with all that they consume together."""
    found: dict[DeviceId, list[Shared]] = {}
    for one in record["sharedDevices"]:
        found.setdefault(_device(one), []).append(Shared(None, OTHERS))
    for one in record["consumedCapacity"]:
        share = {name: counters.exact(quantities.parse(amount)) for name, amount in one["capacity"].items()}
        found.setdefault(_device(one), []).append(Shared(share, OTHERS))
    return {device: tuple(shares) for device, shares in found.items()}


def gang(record: Record) -> list[PodDemand]:
    shared = {one["metadata"]["name"]: claim(one, "shared") for one in record["sharedClaims"]}
    return [
        PodDemand(
            pod=pods.decode({"metadata": {"name": pod["name"], "namespace": "gang", "uid": pod["name"]}, "spec": {}}),
            claims=tuple(shared[one] if isinstance(one, str) else claim(one, pod["name"]) for one in pod["claims"]),
        )
        for pod in record["pods"]
    ]


def claim(obj: Record, owner: str) -> Claim:
    name = obj["metadata"]["name"]
    return claims.decode({**obj, "metadata": {"name": name, "namespace": "gang", "uid": f"{owner}/{name}"}})


def _device(one: Record) -> DeviceId:
    return DeviceId(one["driver"], one["pool"], one["device"])
