"""Gangs whose pods have rules about each other, on a real control plane: what is planned is what is bound."""

from typing import Any

from tests.e2e import fixtures
from tests.e2e.labs import RACK, Lab, exactly, racks_of

HOST = "kubernetes.io/hostname"
FENCED, OPEN = "rules-fenced.test", "rules-open.test"
PLACEMENTS = {"Allocate": FENCED, "Pin": OPEN}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


muster = fixtures.muster(fence=[FENCED])
lab = fixtures.lab_in_racks(PLACEMENTS)


def submit(lab: Lab, name: str, pods: int, *, devices: int = 1, **spec: Any) -> None:
    lab.submit(name, pods=pods, request=exactly(lab, devices), **spec)


def term(key: str, job: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"batch.kubernetes.io/job-name": job}}}


def apart(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def test_pods_with_anti_affinity_run_on_a_node_each_or_are_told_the_rule(lab: Lab) -> None:
    submit(lab, "apart", 3, affinity=apart(term(HOST, "apart")))
    lab.wait_running("apart", 3)

    submit(lab, "many", 4, affinity=apart(term(HOST, "many")))
    hold = lab.team.wait_held("many", "NoFeasiblePlacement")

    assert len(set(lab.pinned_to("apart"))) == 3
    assert f"podAntiAffinity on {HOST} keeps it off" in hold["message"]


def test_a_gang_waits_for_a_pod_that_may_not_be_in_its_rack(lab: Lab) -> None:
    submit(lab, "guard", 1, affinity=apart(term(RACK, "pair")), nodeSelector={RACK: "r1"})
    lab.wait_running("guard", 1)

    submit(lab, "pair", 2, devices=2)
    hold = lab.team.wait_held("pair", "DevicesBusy")
    lab.team.finish("guard")
    lab.wait_running("pair", 2)

    assert f"podAntiAffinity of other pods on {RACK}" in hold["message"]


def test_pods_that_are_spread_over_racks_are_bound_where_they_are_planned(lab: Lab) -> None:
    """With minDomains kube-scheduler counts the node alone that a pod is pinned to."""
    constraint = {**term(RACK, "spread"), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2}
    submit(lab, "spread", 3, topologySpreadConstraints=[constraint])
    lab.wait_running("spread", 3)

    assert racks_of(lab, "spread") == ["r1", "r1", "r2"]
    assert len(set(lab.pinned_to("spread"))) == 3


def test_pods_that_want_to_be_together_are_bound_in_one_rack(lab: Lab) -> None:
    submit(lab, "together", 3, affinity={"podAffinity": {REQUIRED: [term(RACK, "together")]}})
    lab.wait_running("together", 3)

    assert racks_of(lab, "together") == ["r1", "r1", "r1"]


def test_a_host_port_is_taken_once_on_a_node(lab: Lab) -> None:
    container = {
        "name": "main",
        "image": "registry.example.com/main:1",
        "ports": [{"containerPort": 8080, "hostPort": 8080}],
        "resources": {"claims": [{"name": "gpu"}]},
    }
    submit(lab, "ports", 3, containers=[container])
    lab.wait_running("ports", 3)

    assert len(set(lab.pinned_to("ports"))) == 3
