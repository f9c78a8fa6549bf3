"""Tries to change a running pod by its subresources: docs/security.md lists them."""

from collections.abc import Iterator
from typing import Any

import pytest

from admission.api.values import names
from tests.controlplane import ControlPlane, workloads
from tests.controlplane.namespaces import Namespace
from tests.e2e import intruders
from tests.e2e.intruders import refused
from tests.e2e.labs import Lab
from tests.e2e.musters import Muster


@pytest.fixture
def lab(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Lab]:
    """A team with a pod that runs and has one of its two GPUs."""
    with intruders.lab(control_plane, muster, namespace) as lab:
        pod = workloads.pod("train", template="gpu")
        pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "100m"}
        intruders.seen_by(lab, "alice").create(pod)
        lab.namespace.bound("train")
        lab.wait_used(gpus=(0, 1))
        yield lab


def path(lab: Lab, subresource: str) -> str:
    return f"{lab.namespace.pods}/train/{subresource}"


def current(lab: Lab, **labels: str) -> Any:
    pod = lab.namespace.pod("train")
    del pod["metadata"]["resourceVersion"]
    pod["metadata"]["labels"] |= labels
    return pod


def is_unchanged(lab: Lab) -> bool:
    pod = lab.namespace.pod("train")
    claims = [container["resources"].get("claims") for container in pod["spec"]["containers"]]
    return pod["metadata"]["labels"][names.QUEUE] == lab.team.queue and claims == [[{"name": "gpu"}]]


DEBUGGER = {"name": "debugger", "image": "registry.k8s.io/pause:3.10"}


def test_a_container_that_is_added_to_a_running_pod_gets_no_device(lab: Lab) -> None:
    """It may be added by who has the right to; claims and requests are not for it, says the API server."""
    for resources in ({"claims": [{"name": "gpu"}]}, {"limits": {"nvidia.com/gpu": "1"}}):
        greedy = {"spec": {"ephemeralContainers": [DEBUGGER | {"resources": resources}]}}
        said = refused(lab.client.merge_patch, path(lab, "ephemeralcontainers"), greedy)
        assert "cannot be set for an Ephemeral Container" in said

    pod = current(lab, **{names.QUEUE: "another"})
    pod["spec"]["ephemeralContainers"] = [DEBUGGER]
    pod["spec"]["resourceClaims"] = []
    lab.client.replace(path(lab, "ephemeralcontainers"), pod)

    assert [one["name"] for one in lab.namespace.pod("train")["spec"]["ephemeralContainers"]] == ["debugger"]
    assert is_unchanged(lab), "nothing but the container is taken over"


def test_a_pod_is_resized_in_cpu_and_memory_alone(lab: Lab) -> None:
    """Kubernetes 1.36 resizes no container with claims at all."""
    greedy, bare = current(lab), current(lab)
    greedy["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    del bare["spec"]["containers"][0]["resources"]["claims"]
    for pod in (greedy, bare):
        said = refused(lab.client.replace, path(lab, "resize"), pod)
        assert "only cpu and memory resources are mutable" in said

    lab.stop_queue("Hold")
    intruders.seen_by(lab, "alice").create(workloads.pod("stopped", template="gpu"))
    intruders.wait_hold(lab, "stopped", "QueueStopped")
    waiting = workloads.pod("waits")
    waiting["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    intruders.seen_by(lab, "alice").create(waiting)
    more = lab.namespace.pod("waits")
    del more["metadata"]["resourceVersion"], more["spec"]["schedulingGates"]
    more["metadata"]["labels"][names.QUEUE] = "another"
    more["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "200m"}
    lab.client.replace(f"{lab.namespace.pods}/waits/resize", more)

    resized = lab.namespace.pod("waits")
    assert resized["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "200m"}
    assert resized["metadata"]["labels"][names.QUEUE] == lab.team.queue, "nothing but the amounts is taken over"
    assert intruders.is_gated(resized)


def test_a_status_is_written_without_labels_of_musters(lab: Lab) -> None:
    """Kubernetes takes labels and annotations by way of a pod's status as well."""
    change = {"metadata": {"labels": {names.QUEUE: "another"}}, "status": {"message": "x"}}
    assert "GateTampering" in refused(lab.client.merge_patch, path(lab, "status"), change)

    lab.client.merge_patch(path(lab, "status"), {"metadata": {"labels": {"app": "x"}}, "status": {"message": "x"}})

    assert lab.namespace.pod("train")["status"]["message"] == "x"
    assert is_unchanged(lab)
