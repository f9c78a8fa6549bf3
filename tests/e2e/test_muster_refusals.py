"""Plans that kube-scheduler does not carry out, on a real control plane: why is told, and the next plan is another."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.controlplane import ControlPlane, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import fixtures
from tests.e2e.labs import Lab, exactly, plain
from tests.e2e.musters import Muster

FENCED, OPEN = "refused-fenced.test", "refused-open.test"
PLACEMENTS = {"Allocate": FENCED, "Pin": OPEN}
OUTSIDE = "/api/v1/namespaces/default/pods"
"""Of a namespace without a queue: where pods have one, they may name no node."""
PORT = {"containerPort": 9000, "hostPort": 31999}


muster = fixtures.muster(fence=[FENCED])


@pytest.fixture(params=PLACEMENTS)
def lab(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace, request: pytest.FixtureRequest
) -> Iterator[Lab]:
    """Two nodes with a device each; gangs have twenty seconds to start, and are tried again after six."""
    driver = PLACEMENTS[request.param]
    with Lab(control_plane=control_plane, muster=muster, namespace=namespace, driver=driver) as lab:
        lab.device_class()
        lab.meter("gpus", count={})
        for node in ("one", "two"):
            lab.node(node, plain(1))
        lab.found(startTimeout="20s", requeue={"base": "6s", "max": "6s"})
        yield lab


@contextmanager
def without_scheduler(control_plane: ControlPlane) -> Iterator[None]:
    """End kube-scheduler, which gives up its lease, and start it again: it begins when it knows all pods there are."""
    control_plane.stop_program("kube-scheduler", hard=False)
    try:
        yield
    finally:
        control_plane.start_program("kube-scheduler")


def planned_node(lab: Lab, name: str) -> str | None:
    """Return the node of the gang's only pod, as soon as it is let in."""
    if not lab.team.pods(name) or lab.team.gated(name):
        return None
    plan: list[Any] = lab.team.status(name).get("plan", [])
    return str(plan[0]["node"]) if plan else None


def test_a_gang_whose_pod_kube_scheduler_refuses_on_its_node_starts_on_another(lab: Lab) -> None:
    """A port of the node is taken by a pod that nobody scheduled, after the gang was planned there."""
    request = exactly(lab)
    blocking = workloads.pod(f"blocking-{lab.namespace.name}")
    blocking["spec"]["containers"][0]["ports"] = [PORT]
    uses = {"claims": [{"name": "gpu"}]}
    container = {"name": "main", "image": "registry.k8s.io/pause:3.10", "ports": [PORT], "resources": uses}

    lab.submit("warm", pods=1, request=request)
    lab.wait_running("warm", 1)
    lab.end("warm")

    with without_scheduler(lab.control_plane):
        lab.submit("served", pods=1, request=request, containers=[container])
        first = eventually(lambda: planned_node(lab, "served"), what="it is let in")
        blocking["spec"]["nodeName"] = first
        lab.client.create(OUTSIDE, blocking)
    refused = eventually(
        lambda: hold if "refusedOn" in (hold := lab.team.hold("served")).get("details", {}) else None,
        what="it is taken back",
    )
    lab.team.wait_running("served", 1)

    assert "kube-scheduler refused pod served-" in refused["message"]
    assert f" on node {first} (" in refused["message"]
    assert "didn't have free ports" in refused["message"]
    assert refused["details"]["refusedOn"] == [first]
    (second,) = lab.pinned_to("served")
    assert second != first
    assert any("didn't have free ports" in row["reason"] for row in lab.entries("served", "evict"))
    lab.end("served")
    lab.client.delete(f"{OUTSIDE}/{blocking['metadata']['name']}?gracePeriodSeconds=0")
