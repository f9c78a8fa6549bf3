"""Tries to have devices that no queue is charged for: docs/security.md lists them."""

from collections.abc import Iterator
from typing import Any

import pytest

from admission.api.values import names
from tests.controlplane import ControlPlane, placements, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for
from tests.e2e import intruders
from tests.e2e.intruders import refused
from tests.e2e.labs import Lab
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP


@pytest.fixture
def lab(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Lab]:
    with intruders.lab(control_plane, muster, namespace) as lab:
        yield lab


def request(lab: Lab, **more: Any) -> Any:
    found = workloads.device_request(device_class=lab.driver)
    found["exactly"].update(more)
    return found


STATUS = {"status": {"reservedFor": None}}
LABELS = {"metadata": {"labels": {"team": "vision"}}}

FORBIDDEN: dict[str, tuple[str, str, Any]] = {
    "a pod's status": ("PATCH", "/api/v1/namespaces/{ns}/pods/held/status", {"status": {"phase": "Succeeded"}}),
    "a claim's status": ("PATCH", "/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims/{claim}/status", STATUS),
    "a Gang's status": ("PATCH", "/apis/muster.dev/v1alpha1/namespaces/{ns}/gangs/held/status", STATUS),
    "a Gang": ("POST", "/apis/muster.dev/v1alpha1/namespaces/{ns}/gangs", {"metadata": {"name": "mine"}}),
    "a Queue": ("POST", f"{GROUP}/queues", {"metadata": {"name": "mine"}}),
    "the namespace's labels": ("PATCH", "/api/v1/namespaces/{ns}", LABELS),
    "a subresource of containers": ("PATCH", "/api/v1/namespaces/{ns}/pods/held/ephemeralcontainers", {}),
    "a binding": ("POST", "/api/v1/namespaces/{ns}/pods/held/binding", {"metadata": {"name": "held"}}),
    "the webhooks": (
        "PATCH",
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/muster",
        {"webhooks": []},
    ),
    "Muster's Secret": ("GET", "/api/v1/namespaces/muster-system/secrets/muster-webhook", None),
    "the key of heads": ("GET", "/api/v1/namespaces/muster-system/secrets/muster-heads-key", None),
    "heads": ("PUT", "/api/v1/namespaces/muster-system/configmaps/muster-heads", {}),
}


def test_what_would_get_round_muster_is_not_for_ordinary_people(lab: Lab) -> None:
    """The ClusterRoles `admin` and `edit` of Kubernetes give none of these rights; whoever has them is trusted."""
    alice = intruders.seen_by(lab, "alice")
    alice.create(workloads.pod("held", template="gpu"))
    claim = lab.namespace.claim_of("held")["metadata"]["name"]
    for what, (method, path, body) in FORBIDDEN.items():
        where = path.format(ns=lab.namespace.name, claim=claim)
        if method == "GET":
            said = refused(alice.client.get, where)
        else:
            said = refused(alice.client.create if method == "POST" else alice.client.merge_patch, where, body)
        assert said.startswith("403: "), what


def test_a_pod_of_no_queue_that_uses_a_gangs_claim_leaves_the_charge_where_it_is(lab: Lab) -> None:
    """Devices are charged as long as a claim has them, whoever uses it."""
    alice = intruders.seen_by(lab, "alice")
    alice.create(workloads.claim("shared", request(lab)), workloads.pod("inside", claim="shared"))
    lab.namespace.bound("inside")
    lab.wait_used(gpus=(0, 1))
    lab.client.merge_patch(f"{GROUP}/queues/{lab.team.queue}", {"spec": {"default": False}})
    dry = f"{alice.pods}?dryRun=All"
    eventually(
        lambda: not intruders.is_gated(alice.client.create(dry, workloads.pod("dry"))),
        what="pods are not queued any more",
    )
    alice.create(workloads.pod("rider", claim="shared"))
    lab.namespace.bound("rider")

    finish(lab, "inside")
    meter = lab.meters[0]
    holds_for(3, lambda: lab.used(meter) == (0, 1), what="the gang that was granted the device pays for it")
    finish(lab, "rider")
    lab.wait_used(gpus=(0, 0))


def test_a_claim_that_two_queues_share_is_paid_for_once_and_to_the_end(lab: Lab) -> None:
    other = intruders.another_queue(lab)
    alice, meter = intruders.seen_by(lab, "alice"), lab.meters[0]
    alice.create(workloads.claim("shared", request(lab)), workloads.pod("one", claim="shared"))
    lab.namespace.bound("one")
    lab.wait_used(gpus=(0, 1))
    alice.create(workloads.pod("two", claim="shared", labels={names.QUEUE: other}))
    lab.namespace.bound("two")

    finish(lab, "one")
    holds_for(3, lambda: lab.used(meter) == (0, 1), what="the first queue pays")
    status = lab.client.get(f"{GROUP}/queues/{other}")["status"]
    assert [(use["reserved"], use["used"]) for use in status["meters"] if use["meter"] == meter] == [("0", "0")]
    finish(lab, "two")
    lab.wait_used(gpus=(0, 0))
    lab.client.delete(f"{GROUP}/queues/{other}")


def finish(lab: Lab, pod: str) -> None:
    annotation = {"metadata": {"annotations": {workloads.FINISH: "true"}}}
    lab.client.merge_patch(f"{lab.namespace.pods}/{pod}", annotation)


def test_a_template_that_comes_after_the_pod_is_charged_for_what_it_is(lab: Lab) -> None:
    """In its review the pod asks for nothing that is known; when it is planned, its claim is there."""
    alice = intruders.seen_by(lab, "alice")
    alice.create(workloads.pod("late", template="late"))
    intruders.wait_hold(lab, "late", "WaitingForClaims")

    alice.create(intruders.template(lab, "late", count=2))

    lab.namespace.bound("late")
    lab.wait_used(gpus=(0, 2))


def test_a_template_that_is_made_again_with_more_is_charged_for_more(lab: Lab) -> None:
    """kube-controller-manager may not have seen the new one yet: the claim says what the pod gets and pays."""
    alice = intruders.seen_by(lab, "alice")
    alice.create(intruders.template(lab, "mine"), workloads.pod("one", template="mine"))
    lab.namespace.bound("one")
    alice.client.delete(f"{alice.templates}/mine")
    alice.create(intruders.template(lab, "mine", count=2), workloads.pod("two", template="mine"))

    (asked,) = lab.namespace.claim_of("two")["spec"]["devices"]["requests"]
    if asked["exactly"]["count"] == 2:
        assert intruders.wait_hold(lab, "two", "QuotaExceeded")["details"]["needed"] == "2"
    else:
        lab.wait_used(gpus=(0, 2))


def test_a_class_that_nobody_counts_is_not_let_in_by_a_late_template(lab: Lab) -> None:
    """In a namespace without a default queue the template itself is nobody's, and its pod names the queue."""
    free = lab.device_class(suffix="free-")
    lab.client.merge_patch(f"{GROUP}/queues/{lab.team.queue}", {"spec": {"default": False}})
    alice = intruders.seen_by(lab, "alice")
    dry = f"{alice.pods}?dryRun=All"
    eventually(
        lambda: not intruders.is_gated(alice.client.create(dry, workloads.pod("dry"))),
        what="pods are not queued any more",
    )
    alice.create(workloads.pod("late", template="late", labels={names.QUEUE: lab.team.queue}))
    alice.create(workloads.claim_template("late", workloads.device_request(device_class=free)))

    hold = intruders.wait_hold(lab, "late", "UnmeteredClass")

    assert free in hold["message"]
    assert intruders.is_gated(lab.namespace.pod("late"))


def test_a_pod_whose_status_names_another_pods_claim_waits(lab: Lab) -> None:
    """As written by somebody who may write the status of pods."""
    lab.stop_queue("Hold")
    intruders.seen_by(lab, "alice").create(workloads.pod("one", template="gpu"), workloads.pod("two", template="gpu"))
    mine = lab.namespace.claim_of("one")["metadata"]["name"]
    lab.namespace.claim_of("two")
    forged = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": mine}]}}
    lab.client.merge_patch(f"{lab.namespace.pods}/two/status", forged)
    lab.stop_queue("None")

    lab.namespace.bound("one")
    hold = intruders.wait_hold(lab, "two", "WaitingForClaims")
    assert "was made for pod one" in hold["message"]


def test_admin_access_is_the_administrators_to_allow(lab: Lab) -> None:
    alice = intruders.seen_by(lab, "alice")

    said = refused(alice.create, workloads.claim("every", request(lab, adminAccess=True)))

    assert "resource.kubernetes.io/admin-access" in said


def test_a_device_that_somebody_allocated_by_hand_is_in_use_and_given_to_nobody_else(lab: Lab) -> None:
    """Who may write the status of claims can take any device; Muster sees it, and plans around it."""
    (node,) = [one["metadata"]["name"] for one in lab.hardware if one["kind"] == "Node"]
    for number in range(4):
        name = f"taken-{number}"
        lab.namespace.create(workloads.claim(name, request(lab)))
        placements.protect(lab.namespace, name)
        result = {"request": "gpu", "driver": lab.driver, "pool": node, "device": f"gpu-{number}"}
        placements.write_allocation(lab.namespace, name, {"devices": {"results": [result]}})

    intruders.seen_by(lab, "alice").create(workloads.pod("waits", template="gpu"))

    hold = intruders.wait_hold(lab, "waits", "DevicesBusy")
    assert "taken-" in hold["message"]
    lab.client.merge_patch(f"{lab.namespace.claims}/taken-3/status", {"status": {"allocation": None}})
    lab.namespace.bound("waits")
