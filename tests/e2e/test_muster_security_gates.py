"""Tries to get a pod past its gate, or to another queue, gang or maker: docs/security.md lists them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from admission.api.values import names
from tests.controlplane import ControlPlane, workloads
from tests.controlplane.clients import Client
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import intruders, rights
from tests.e2e.intruders import refused
from tests.e2e.labs import Lab
from tests.e2e.musters import Muster

OTHER_GATE = "example.com/quarantine"


@pytest.fixture
def lab(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Lab]:
    """A queue that starts nobody, and a pod that bob has created in it."""
    with intruders.lab(control_plane, muster, namespace, stopPolicy="Hold") as lab:
        settings = {names.GANG_MIN: "1", names.GANG_SIZE: "2", names.TOPOLOGY: "rack"}
        pod = workloads.pod("held", template="gpu", labels={names.GANG: "pair"}, annotations=settings)
        pod["spec"]["schedulingGates"] = [{"name": OTHER_GATE}]
        intruders.seen_by(lab, "bob").create(pod)
        assert intruders.is_gated(namespace.pod("held"))
        yield lab


def path(lab: Lab) -> str:
    return f"{lab.namespace.pods}/held"


def as_alice(lab: Lab) -> Client:
    return lab.control_plane.client("alice")


def without(lab: Lab) -> Any:
    """Return the pod as it is, but for its gates; whichever version it is."""
    pod = lab.namespace.pod("held")
    del pod["spec"]["schedulingGates"], pod["metadata"]["resourceVersion"]
    return pod


def by_kubectl(lab: Lab) -> str:
    patch = {"spec": {"schedulingGates": [{"name": workloads.GATE, "$patch": "delete"}]}}
    words = ("patch", "pod", "held", "-n", lab.namespace.name, "--type=strategic", "-p", json.dumps(patch))
    return lab.control_plane.kubectl(*words, user="alice")


WAYS: dict[str, Callable[[Lab], object]] = {
    "update": lambda lab: as_alice(lab).replace(path(lab), without(lab)),
    "merge patch": lambda lab: as_alice(lab).merge_patch(path(lab), {"spec": {"schedulingGates": None}}),
    "JSON patch": lambda lab: as_alice(lab).json_patch(
        path(lab), [{"op": "replace", "path": "/spec/schedulingGates", "value": [{"name": OTHER_GATE}]}]
    ),
    "strategic merge patch": by_kubectl,
    "dry run": lambda lab: as_alice(lab).merge_patch(f"{path(lab)}?dryRun=All", {"spec": {"schedulingGates": None}}),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_nobody_opens_a_gate(lab: Lab, way: Callable[[Lab], object]) -> None:
    assert "GateTampering: scheduling gate muster.dev/admission is removed by alice" in refused(way, lab)
    assert intruders.is_gated(lab.namespace.pod("held"))


CONTROLLERS = (
    "system:serviceaccount:kube-system:job-controller",
    "system:serviceaccount:kube-system:replicaset-controller",
    "system:kube-controller-manager",
    "system:kube-scheduler",
    "an-administrator",
)


def test_controllers_and_administrators_open_no_gate_either(lab: Lab) -> None:
    opened = json.dumps({"spec": {"schedulingGates": []}})

    for user in CONTROLLERS:
        said = refused(intruders.patched_as, lab, "held", opened, user=user)
        assert f"GateTampering: scheduling gate muster.dev/admission is removed by {user}" in said
    assert intruders.is_gated(lab.namespace.pod("held"))


def test_what_others_hold_a_pod_by_they_may_let_go(lab: Lab) -> None:
    as_alice(lab).json_patch(
        path(lab), [{"op": "replace", "path": "/spec/schedulingGates", "value": [{"name": workloads.GATE}]}]
    )

    assert [gate["name"] for gate in lab.namespace.pod("held")["spec"]["schedulingGates"]] == [workloads.GATE]


def test_who_applies_a_manifest_with_the_gate_cannot_apply_it_without(lab: Lab) -> None:
    """Server-side apply takes out what its manager put in, and no webhook has to be told of that."""
    alice = as_alice(lab)
    manifest = workloads.pod("applied", gates=[workloads.GATE])
    applied = f"{lab.namespace.pods}/applied"
    alice.apply(applied, manifest)

    manifest["spec"]["schedulingGates"] = []

    assert "GateTampering" in refused(alice.apply, applied, manifest)
    assert "GateTampering" in refused(alice.merge_patch, applied, {"spec": {"schedulingGates": []}})


@pytest.mark.parametrize(
    "apply", [("apply",), ("apply", "--server-side"), ("apply", "--server-side", "--force-conflicts")]
)
def test_applying_the_same_manifest_again_leaves_the_gate(lab: Lab, apply: tuple[str, ...]) -> None:
    """As a tool that keeps manifests true does every minute: what Muster put in is nothing that it takes out."""
    manifest = json.dumps(workloads.pod("kept", template="gpu"))

    for _ in range(2):
        lab.control_plane.kubectl(*apply, "-n", lab.namespace.name, "-f", "-", input=manifest, user="alice")

    pod = lab.namespace.pod("kept")
    assert intruders.is_gated(pod)
    assert pod["metadata"]["labels"][names.QUEUE] == lab.team.queue
    assert pod["metadata"]["annotations"][names.USER] == "alice"


def test_a_deployments_pods_keep_their_gates_whatever_is_applied_to_them(lab: Lab) -> None:
    """An empty list, by force and by whatever name: a list of gates is merged, and what others put in stays."""
    spec = workloads.pod("-")["spec"]
    template = {"metadata": {"labels": {"app": "serve"}}, "spec": {key: spec[key] for key in ("containers",)}}
    deployment = {"selector": {"matchLabels": {"app": "serve"}}, "template": template}
    where = f"/apis/apps/v1/namespaces/{lab.namespace.name}/deployments"
    as_alice(lab).create(where, {"metadata": {"name": "serve"}, "spec": deployment})
    (pod,) = eventually(
        lambda: lab.client.items(f"{lab.namespace.pods}?labelSelector=app%3Dserve"),
        what="the Deployment's pod is there",
    )
    name = pod["metadata"]["name"]
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"schedulingGates": []}}

    for manager in ("alice", "kube-controller-manager", "muster"):
        as_alice(lab).apply(f"{lab.namespace.pods}/{name}", manifest, manager=manager)

    assert intruders.is_gated(lab.namespace.pod(name))
    as_alice(lab).delete(f"{where}/serve")


FIXED: dict[str, tuple[str, str, str | None]] = {
    "another queue": ("labels", names.QUEUE, "another"),
    "no queue": ("labels", names.QUEUE, None),
    "another gang": ("labels", names.GANG, "another"),
    "a smaller gang": ("annotations", names.GANG_SIZE, "1"),
    "no size": ("annotations", names.GANG_SIZE, None),
    "a smaller start": ("annotations", names.GANG_MIN, "2"),
    "another topology": ("annotations", names.TOPOLOGY, "zone"),
    "claims": ("annotations", names.CLAIMS, "gpu=other"),
    "a conversion": ("annotations", names.CONVERTED, "p:nvidia.com/gpu=1"),
    "another maker": ("annotations", names.USER, "alice"),
    "no maker": ("annotations", names.USER, None),
}


@pytest.mark.parametrize(("field", "key", "value"), FIXED.values(), ids=FIXED)
def test_what_a_pod_is_to_muster_stays_as_it_is(lab: Lab, field: str, key: str, value: str | None) -> None:
    """Also by way of the status, for those who may write it."""
    change = {"metadata": {field: {key: value}}}

    assert "GateTampering" in refused(as_alice(lab).merge_patch, path(lab), change)
    assert "GateTampering" in refused(lab.client.merge_patch, f"{path(lab)}/status", change)


def test_a_gated_pod_is_bound_by_nobody(lab: Lab) -> None:
    (node,) = [one["metadata"]["name"] for one in lab.hardware if one["kind"] == "Node"]
    binding = {"metadata": {"name": "held"}, "target": {"kind": "Node", "name": node}}
    namespaced = f"/api/v1/namespaces/{lab.namespace.name}/bindings"

    for where in (f"{path(lab)}/binding", namespaced):
        assert "403" in refused(as_alice(lab).create, where, binding)
        assert "has non-empty .spec.schedulingGates" in refused(lab.client.create, where, binding)


def test_nobody_poses_as_the_controller(lab: Lab) -> None:
    """Not by impersonation without the right to it, and not by being of its group."""
    opened = json.dumps({"spec": {"schedulingGates": []}})
    words = ("patch", "pod", "held", "-n", lab.namespace.name, "--type=merge", "-p", opened)

    said = refused(lab.control_plane.kubectl, *words, "--as", "muster", user="alice")
    assert 'User "alice" cannot impersonate' in said
    said = refused(lab.control_plane.kubectl, *words, "--as", "alice", "--as-group", "muster")
    assert "GateTampering" in said
    assert intruders.is_gated(lab.namespace.pod("held"))


def test_an_account_of_the_controllers_name_elsewhere_is_somebody_else(lab: Lab) -> None:
    place = f"/api/v1/namespaces/{lab.namespace.name}/serviceaccounts"
    alice = as_alice(lab)
    alice.create(place, {"metadata": {"name": "muster"}})
    subject = {"kind": "ServiceAccount", "name": "muster", "namespace": lab.namespace.name}
    intruders.let_in(lab.control_plane, lab.namespace, [subject])
    token = alice.create(f"{place}/muster/token", {"spec": {}})["status"]["token"]
    account = replace(alice, token=token)
    eventually(lambda: intruders.may(account, lab.namespace, "patch", "pods"), what="the account is let in")

    said = refused(account.merge_patch, path(lab), {"spec": {"schedulingGates": []}})

    accounts = [f"system:serviceaccount:{name}:muster" for name in (lab.namespace.name, rights.NAMESPACE)]
    assert f"is removed by {accounts[0]}; only {accounts[1]} opens it" in said


def test_the_webhooks_own_account_opens_no_gate_whatever_it_is_granted(lab: Lab) -> None:
    intruders.let_in(
        lab.control_plane,
        lab.namespace,
        [{"kind": "ServiceAccount", "name": "muster-webhook", "namespace": rights.NAMESPACE}],
    )
    account = replace(lab.client, token=rights.token(lab.control_plane, rights.WEBHOOK))
    eventually(lambda: intruders.may(account, lab.namespace, "patch", "pods"), what="the account is let in")

    said = refused(account.merge_patch, path(lab), {"spec": {"schedulingGates": []}})

    assert f"is removed by {rights.WEBHOOK_USER}; only {rights.USER} opens it" in said
    assert intruders.is_gated(lab.namespace.pod("held"))
