"""Fake hardware as manifests: nodes that KWOK plays, and ResourceSlices in the shape of NVIDIA's DRA driver.

Nothing distinguishes these slices from those of a real node as far as kube-scheduler and Muster are concerned: driver,
attributes, versions and capacities carry the names and types that k8s-dra-driver-gpu v25 publishes.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from tests.controlplane.clients import ApiError, Client
from tests.controlplane.observing import eventually

DRIVER = "gpu.nvidia.com"
DEVICE_CLASS = "gpu.nvidia.com"
GPUS_PER_PCIE_ROOT = 2

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One model of GPU, as its driver describes it."""

    name: str
    architecture: str
    compute_capability: str
    memory: str
    brand: str = "Nvidia"


PRODUCTS: Mapping[str, Product] = {
    "a100": Product(name="NVIDIA A100-SXM4-40GB", architecture="Ampere", compute_capability="8.0.0", memory="40Gi"),
    "h100": Product(name="NVIDIA H100 80GB HBM3", architecture="Hopper", compute_capability="9.0.0", memory="80Gi"),
    "l4": Product(name="NVIDIA L4", architecture="Ada Lovelace", compute_capability="8.9.0", memory="24Gi"),
    "t4": Product(name="Tesla T4", architecture="Turing", compute_capability="7.5.0", memory="16Gi", brand="Tesla"),
}

COLLECTIONS: Mapping[str, str] = {
    "Node": "/api/v1/nodes",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}


def demo_fleet(
    gpus_per_node: int | Sequence[int] = 4, *, product: str = "a100", prefix: str = "node"
) -> list[Manifest]:
    """Six nodes in two racks and their GPUs; a sequence gives each node its own number of GPUs, and its length."""
    counts = [gpus_per_node] * 6 if isinstance(gpus_per_node, int) else list(gpus_per_node)
    manifests = [device_class()]
    for number, gpus in enumerate(counts):
        name = f"{prefix}-{number + 1}"
        manifests += gpu_node(name, gpus=gpus, product=product, rack=f"rack-{'ab'[number * 2 // len(counts)]}")
    return manifests


def gpu_node(
    name: str,
    *,
    gpus: int,
    product: str = "a100",
    rack: str = "rack-a",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    allocatable: Mapping[str, str] | None = None,
) -> list[Manifest]:
    """A node and the ResourceSlice of its GPUs; a node without any has no slice."""
    slices = [resource_slice(name, [gpu(name, index, product=product) for index in range(gpus)])] if gpus else []
    return [node(name, rack=rack, labels=labels, taints=taints, allocatable=allocatable), *slices]


def node(
    name: str,
    *,
    rack: str = "rack-a",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    allocatable: Mapping[str, str] | None = None,
) -> Manifest:
    """A node that KWOK keeps Ready: 32 cores, 256 GiB and 110 pods unless told otherwise."""
    resources = {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110", **(allocatable or {})}
    own = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/rack": rack,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**own, **(labels or {})},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [dict(taint) for taint in taints]} if taints else {},
        "status": {"allocatable": resources, "capacity": resources},
    }


def gpu(node_name: str, index: int, *, product: str = "a100") -> Manifest:
    """One device of a ResourceSlice; two neighbours share a PCIe root."""
    model = PRODUCTS[product]
    root = f"pci0000:{index // GPUS_PER_PCIE_ROOT:02x}"
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node_name}/{index}')}"},
            "productName": {"string": model.name},
            "brand": {"string": model.brand},
            "architecture": {"string": model.architecture},
            "cudaComputeCapability": {"version": model.compute_capability},
            "cudaDriverVersion": {"version": "13.0.0"},
            "driverVersion": {"version": "580.95.5"},
            "resource.kubernetes.io/pcieRoot": {"string": root},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{index // GPUS_PER_PCIE_ROOT:02x}:{index:02x}.0"},
        },
        "capacity": {"memory": {"value": model.memory}},
    }


def resource_slice(
    node_name: str, devices: Sequence[Manifest], *, driver: str = DRIVER, generation: int = 1
) -> Manifest:
    """A node's pool in one slice, named after the node as the driver does."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node_name}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": generation, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }


def device_class(name: str = DEVICE_CLASS, *, driver: str = DRIVER) -> Manifest:
    """The class that NVIDIA's chart installs for whole GPUs."""
    expression = f"device.driver == '{driver}' && device.attributes['{driver}'].type == 'gpu'"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def priority_class(name: str, *, value: int = 1000) -> Manifest:
    """A priority that kube-scheduler itself preempts nobody for."""
    body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **body}


@contextmanager
def installed(client: Client, manifests: Iterable[Manifest]) -> Iterator[None]:
    """Have this hardware for a while."""
    wanted = list(manifests)
    try:
        install(client, wanted)
        yield
    finally:
        remove(client, wanted)


def install(client: Client, manifests: Iterable[Manifest]) -> None:
    """Create this hardware and wait until its nodes take pods; what is there already stays as it is.

    A new node is tainted not-ready for a moment, and a pod that meets the taint is not merely late: kube-scheduler
    takes back the devices that were allocated for it.
    """
    wanted = list(manifests)
    for manifest in wanted:
        try:
            client.create(COLLECTIONS[manifest["kind"]], manifest)
        except ApiError as error:
            if error.code != HTTPStatus.CONFLICT:
                raise
    for manifest in wanted:
        if manifest["kind"] == "Node":
            _wait_until_it_takes_pods(client, manifest["metadata"]["name"])


def _wait_until_it_takes_pods(client: Client, name: str) -> None:
    def ready_and_untainted() -> bool:
        seen = client.get(f"{COLLECTIONS['Node']}/{name}")
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in seen["status"].get("conditions", []))
        taints = [taint["key"] for taint in seen["spec"].get("taints", [])]
        return ready and "node.kubernetes.io/not-ready" not in taints

    # After a restart of the API server KWOK's watch may be silent for a whole minute before it tells of a new node.
    eventually(ready_and_untainted, what=f"node {name} is ready", within=90)


def remove(client: Client, manifests: Iterable[Manifest]) -> None:
    """Take the hardware away again, in the order of an uninstall; the class stays for other fleets."""
    for manifest in reversed(list(manifests)):
        if manifest["kind"] != "DeviceClass":
            client.delete(f"{COLLECTIONS[manifest['kind']]}/{manifest['metadata']['name']}")
