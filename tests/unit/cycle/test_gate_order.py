"""In which order gates are opened: pod by pod where kube-scheduler's answer depends on whom it sees first."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import cast

from admission import default_ports, ports
from admission.api.kubernetes import pods
from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot
from admission.api.storage import persistent_volumes
from admission.api.storage.storage import Storage
from admission.api.values.names import NodeName, Uid
from admission.cycle.bulk_writes import BulkWriter
from admission.cycle.state.in_flight import InFlight
from admission.cycle.state.term import CycleSettings
from admission.simulation import in_memory

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TOGETHER = {
    "podAffinity": {REQUIRED: [{"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "x"}}}]},
}


class _Gates:
    """Opens gates, the first one of each node slowly."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    async def open_gate(self, pod: Pod, node: NodeName | None) -> None:
        if pod.meta.name == "first":
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        self.opened.append(f"{pod.meta.name} on {node or ''}")


def a_pod(name: str, **spec: object) -> Pod:
    meta = {"name": name, "namespace": "team", "uid": name, "labels": {"app": "x"}}
    return pods.decode({"metadata": meta, "spec": {"containers": [], **spec}})


async def opened(
    *gang: tuple[Pod, str], storage: Storage | None = None, keys: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Open the gates and return them in the order in which that was done. keys: by pod, of claims to be allocated."""
    gates = _Gates()
    writer = BulkWriter(
        settings=CycleSettings(),
        pods=cast("ports.Pods", gates),
        reports=in_memory.Cluster(Snapshot()),
        traces=default_ports.NoTraces(),
        in_flight=InFlight(),
    )
    # Each pod is a gang of its own where volumes are asked about.
    pairs = [(pod, NodeName(node)) for pod, node in gang]
    await writer.open_gates(
        [pairs] if storage is None else [[pair] for pair in pairs],
        allocation_keys={Uid(name): key for name, key in keys.items()},
        storage=storage,
        shapes={},
        annotations={},
    )
    return gates.opened


THREE = ((a_pod("first"), "a"), (a_pod("second"), "b"), (a_pod("third"), "a"))


async def test_gates_on_one_node_follow_each_other_where_kube_scheduler_allocates_different_claims() -> None:
    keys = {"first": "two GPUs", "second": "one GPU", "third": "one GPU"}

    assert await opened(*THREE, keys=keys) == ["second on b", "first on a", "third on a"]


async def test_gates_of_equal_pods_and_of_pods_whose_devices_are_allocated_do_not_wait_for_each_other() -> None:
    """Equal pods get the same devices in any order; where all are allocated nobody chooses any more."""
    for keys in ({}, dict.fromkeys(("first", "second", "third"), "one GPU")):
        assert set((await opened(*THREE, keys=keys))[:2]) == {"second on b", "third on a"}


async def test_pods_between_equal_ones_keep_their_turn() -> None:
    keys = {"first": "one GPU", "other": "two GPUs", "third": "one GPU"}
    on_a = [(a_pod(name), "a") for name in keys]

    assert await opened(*on_a, keys=keys) == ["first on a", "other on a", "third on a"]


async def test_pods_for_which_kube_scheduler_chooses_the_node_wait_for_nobody() -> None:
    keys = {"first": "two GPUs", "second": "one GPU"}

    assert await opened((a_pod("first"), ""), (a_pod("second"), ""), keys=keys) == ["second on ", "first on "]


async def test_gates_of_a_gang_whose_pods_need_each_other_are_opened_one_after_the_other() -> None:
    """kube-scheduler would let the second one go anywhere if it saw it first."""
    second = a_pod("second", affinity=TOGETHER)

    assert await opened((a_pod("first"), "a"), (second, "b"), (a_pod("third"), "a")) == [
        "first on a",
        "second on b",
        "third on a",
    ]


async def test_gates_of_gangs_that_wait_for_volumes_are_opened_one_gang_after_the_other() -> None:
    """The first pod that kube-scheduler sees takes the smallest volume that will do, which another one may need."""
    modes = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
    names = ("first", "second", "third")
    claims = [
        persistent_volumes.decode_claim({"metadata": {"name": name, "namespace": "team"}, "spec": modes})
        for name in names
    ]
    volume = {"metadata": {"name": "pv"}, "spec": modes, "status": {"phase": "Available"}}
    of_class = {"metadata": {"name": "local"}, "volumeBindingMode": "WaitForFirstConsumer"}
    storage = Storage(
        claims={one.meta.key: one for one in claims},
        volumes={"pv": persistent_volumes.decode_volume(volume)},
        classes={"local": persistent_volumes.decode_class(of_class)},
    )
    pods_ = [a_pod(n, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": n}}]) for n in names]

    pairs = list(zip(pods_, ("a", "b", "c"), strict=True))

    assert await opened(*pairs, storage=storage) == ["first on a", "second on b", "third on c"]
    assert (await opened(*pairs, storage=replace(storage, volumes={})))[0] == "second on b"
