"""Manifests in the shape of the examples of public DRA drivers: the API server takes what Muster makes of each.

The shapes are those of kubernetes-sigs/dra-example-driver (demo/examples) and NVIDIA/k8s-dra-driver-gpu (demo/specs).
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane import ApiError, ControlPlane
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP

GPU, NVIDIA, MIG, NET = "gpu.example.com", "gpu.nvidia.com", "mig.nvidia.com", "net.example.com"


def one(name: str, device_class: str, *selectors: str, **more: Any) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": device_class, **more}
    if selectors:
        exactly["selectors"] = [{"cel": {"expression": text}} for text in selectors]
    return {"name": name, "exactly": exactly}


def shared(request: str, driver: str, strategy: str) -> dict[str, Any]:
    parameters = {"apiVersion": f"{driver}/v1", "kind": "GpuConfig", "sharing": {"strategy": strategy}}
    return {"requests": [request], "opaque": {"driver": driver, "parameters": parameters}}


def profile(text: str) -> str:
    return f"device.attributes['{NVIDIA}'].profile == '{text}'"


SPECS: dict[str, dict[str, Any]] = {
    "one device": {"requests": [one("gpu", GPU)]},
    "several requests": {"requests": [one("first", GPU), one("second", GPU)]},
    "a model and some memory": {
        "requests": [
            one(
                "gpu",
                GPU,
                f"device.attributes['{GPU}'].model == 'A100'",
                f"device.capacity['{GPU}'].memory.compareTo(quantity('4Gi')) >= 0",
            )
        ]
    },
    "shared in time and in space": {
        "requests": [one("time", NVIDIA), one("space", NVIDIA)],
        "config": [shared("time", NVIDIA, "TimeSlicing"), shared("space", NVIDIA, "MPS")],
    },
    "partitions of one device": {
        "requests": [one("small", MIG, profile("1g.5gb")), one("large", MIG, profile("3g.20gb"))],
        "constraints": [{"requests": [], "matchAttribute": f"{NVIDIA}/parentUUID"}],
    },
    "the first that is to be had": {
        "requests": [
            {
                "name": "gpu",
                "firstAvailable": [
                    {"name": "new", "deviceClassName": NVIDIA},
                    {"name": "two-old", "deviceClassName": GPU, "count": 2},
                ],
            }
        ]
    },
    "every device": {"requests": [one("gpu", GPU, allocationMode="All")]},
    "bandwidth of a shared card": {"requests": [one("nic", NET, capacity={"requests": {"ingressBandwidth": "10G"}})]},
    "a taint is tolerated": {
        "requests": [one("gpu", GPU, tolerations=[{"key": f"{GPU}/unhealthy", "operator": "Exists"}])]
    },
}


@pytest.fixture(scope="module")
def muster(control_plane: ControlPlane) -> Iterator[Muster]:
    muster = Muster(control_plane)
    yield muster.start()
    muster.clean()


@pytest.fixture
def policy(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[None]:
    """A policy that gives every request of the namespace something."""
    toleration = {"key": "example.com/draining", "operator": "Exists"}
    spec = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}},
        "defaults": [
            {
                "labels": {"cost-centre": "r-17"},
                "tolerations": [toleration],
                "selectors": [{"cel": {"expression": "true"}}],
            }
        ],
    }
    name, client = f"examples-{namespace.name}", control_plane.client()
    body = {"apiVersion": "muster.dev/v1alpha1", "kind": "ClaimPolicy", "metadata": {"name": name}, "spec": spec}
    client.create(f"{GROUP}/claimpolicies", body)

    def applied() -> bool:
        try:
            return "labels" in client.create(f"{namespace.claims}?dryRun=All", claim("probe", {}))["metadata"]
        except ApiError:  # one of the two webhooks is registered a moment before the other
            return False

    eventually(applied, what=f"{name} is applied")
    yield
    client.delete(f"{GROUP}/claimpolicies/{name}")


def claim(name: str, devices: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": devices},
    }


@pytest.mark.usefixtures("policy")
def test_what_muster_makes_of_public_examples_is_stored(namespace: Namespace) -> None:
    for index, devices in enumerate(SPECS.values()):
        template = {**claim(f"t{index}", {}), "kind": "ResourceClaimTemplate", "spec": {"spec": {"devices": devices}}}
        namespace.create(claim(f"c{index}", devices), template)

        stored = namespace.claim(f"c{index}")
        made = namespace.client.get(f"{namespace.templates}/t{index}")
        assert stored["metadata"]["labels"] == {"cost-centre": "r-17"}
        assert made["spec"]["spec"]["devices"] == stored["spec"]["devices"]
        for asked, wanted in zip(stored["spec"]["devices"]["requests"], devices["requests"], strict=True):
            assert given_to(asked).issuperset(given_to(wanted))
            assert "tolerations" in given_to(asked)


def given_to(request: dict[str, Any]) -> set[str]:
    """Return what every alternative of a request says."""
    options = request.get("firstAvailable") or [request["exactly"]]
    return set.intersection(*(set(option) for option in options))


@pytest.mark.usefixtures("policy")
def test_a_queue_that_closes_a_circle_is_refused_by_the_api_server(
    control_plane: ControlPlane, namespace: Namespace
) -> None:
    client = control_plane.client()
    one_, other = (f"{letter}-{namespace.name}" for letter in "ab")
    queues = f"{GROUP}/queues"

    def queue(name: str, parent: str) -> dict[str, Any]:
        metadata = {"name": name}
        return {"apiVersion": "muster.dev/v1alpha1", "kind": "Queue", "metadata": metadata, "spec": {"parent": parent}}

    client.create(queues, queue(one_, other))

    def refused() -> bool:
        try:
            client.create(f"{queues}?dryRun=All", queue(other, one_))
        except ApiError as error:
            return "is its own ancestor" in str(error)
        return False

    try:
        eventually(refused, what="Muster has seen the first queue")
    finally:
        client.delete(f"{queues}/{one_}")
