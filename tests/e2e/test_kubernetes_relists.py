"""What Kubernetes itself makes of two objects of one name, if it has missed the deletion of the first one.

A controller that lists again after the API server was away finds another UID under a known name. client-go tells it
that one object has changed (`OnUpdate`), and not everybody compares the UIDs. The long churn kills API servers, so it
has to do what an administrator would (`churns`). No Muster runs here. When a newer Kubernetes answers differently, one
of these names is false.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.controlplane import ControlPlane, fleet, workloads
from tests.controlplane.fleet import Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for

NODES = ("relist-a", "relist-b")
SECONDS_LEFT = 10.0
"""Without such a miss the garbage collector takes less than a second."""


@pytest.fixture(autouse=True)
def nodes(control_plane: ControlPlane) -> Iterator[None]:
    with fleet.installed(control_plane.client(), [fleet.node(name) for name in NODES]):
        yield


@contextmanager
def missed_by(control_plane: ControlPlane, program: str) -> Iterator[None]:
    """Have a program miss what happens meanwhile: it stands still, has no watch, and can only list afterwards."""
    os.kill(control_plane.pid(program), signal.SIGSTOP)
    try:
        control_plane.restart_apiserver(hard=True)
        yield
        control_plane.restart_apiserver(hard=True)
    finally:
        os.kill(control_plane.pid(program), signal.SIGCONT)


def test_kube_scheduler_ends_itself_over_a_pod_that_was_made_anew_on_another_node(
    control_plane: ControlPlane, namespace: Namespace
) -> None:
    """Pull request 141078 of kubernetes/kubernetes tells of it; 1.36.3 and 1.37.1 have it."""
    first, second = (workloads.pod("again", nodeName=node) for node in NODES)
    namespace.create(first)
    eventually(lambda: namespace.pod("again").get("status", {}).get("phase") == "Running", what="it runs")

    with missed_by(control_plane, "kube-scheduler"):
        namespace.client.delete(f"{namespace.pods}/again?gracePeriodSeconds=0")
        namespace.create(second)

    eventually(lambda: "kube-scheduler" in control_plane.revive(), what="kube-scheduler has ended")
    namespace.create(workloads.pod("next"))
    namespace.bound("next")


def test_the_garbage_collector_leaves_the_pods_of_a_set_that_was_made_anew(
    control_plane: ControlPlane, namespace: Namespace
) -> None:
    """Its graph keeps the first set for ever; a kube-controller-manager that starts builds another one."""
    path = f"/apis/apps/v1/namespaces/{namespace.name}/statefulsets"
    first = namespace.client.create(path, a_set("set"))["metadata"]["uid"]
    eventually(lambda: owners(namespace) == [first] * 2, what="it has its pods")

    with missed_by(control_plane, "kube-controller-manager"):
        namespace.client.delete(f"{path}/set?propagationPolicy=Background")
        second = namespace.client.create(path, a_set("set"))["metadata"]["uid"]

    holds_for(SECONDS_LEFT, lambda: owners(namespace) == [first] * 2, what="nobody deletes the pods")
    control_plane.stop_program("kube-controller-manager")
    control_plane.start_program("kube-controller-manager")
    eventually(lambda: owners(namespace) == [second] * 2, what="the other set has its pods")
    namespace.client.delete(f"{path}/set?propagationPolicy=Background")
    eventually(partial(is_empty, namespace), what="nothing is left")


def a_set(name: str) -> Manifest:
    labels = {"set": name}
    template = {"metadata": {"labels": labels}, "spec": workloads.pod("-", nodeName=NODES[0])["spec"]}
    spec = {"replicas": 2, "serviceName": name, "podManagementPolicy": "Parallel", "selector": {"matchLabels": labels}}
    return {"metadata": {"name": name}, "spec": {**spec, "template": template}}


def owners(namespace: Namespace) -> list[str]:
    """Return the UID of each pod's owner, of those that are not being deleted."""
    pods = [pod["metadata"] for pod in namespace.client.items(namespace.pods)]
    return [pod["ownerReferences"][0]["uid"] for pod in pods if "deletionTimestamp" not in pod]


def is_empty(namespace: Namespace) -> bool:
    return not namespace.client.items(namespace.pods)
