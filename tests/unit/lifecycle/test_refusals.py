"""Which pods are kept off which nodes after kube-scheduler refused some there."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from admission.api.kubernetes import pods
from admission.api.kubernetes.pods import Pod
from admission.api.muster import gangs
from admission.api.muster.gangs import GangReport, Phase
from admission.api.scheduling.scheduling_rules import REQUIRED
from admission.api.values import names
from admission.api.values.names import GangUid, NodeName, QueueName
from admission.api.values.reasons import Hold, HoldReason
from admission.dra.requests.gang_request import PodDemand
from admission.kube.writers import pod_patch, status_encoding
from admission.lifecycle import refusals
from admission.lifecycle.refusals import Refusal, Site
from tests.builders import NOON

MINUTE = timedelta(minutes=1)
NODES = ("a", "b", "c")


def a_pod(name: str = "p", *, conditions: tuple[dict[str, Any], ...] = (), **spec: Any) -> Pod:
    return pods.decode(
        {
            "metadata": {"name": name, "namespace": "team", "uid": name},
            "spec": spec,
            "status": {"conditions": [*conditions]},
        }
    )


def refused(pod: Pod, node: str, *, bound: int = 0, minutes: int = 0, message: str = "no") -> Refusal:
    return Refusal(
        shape=refusals.shape(pod),
        pod=pod.meta.name,
        node=NodeName(node),
        bound=bound,
        message=message,
        since=NOON + minutes * MINUTE,
        site=Site(None, frozenset(), {}),
    )


def allowed(demands: list[Pod], *given: Refusal) -> list[str]:
    """Return the nodes where each pod may go, written `ab`."""
    found = refusals.avoiding([PodDemand(pod=pod) for pod in demands], given)
    affinities = [demand.pod.affinity for demand in found]
    return ["".join(node for node in NODES if one is None or one.matches(node, {})) for one in affinities]


def test_pods_alike_avoid_the_node_and_others_do_not() -> None:
    pod, other = a_pod(), a_pod("q", tolerations=[{"operator": "Exists"}])

    assert allowed([pod, a_pod("p2"), other], refused(pod, "a")) == ["bc", "bc", "abc"]


@pytest.mark.parametrize(
    ("message", "avoids"),
    [
        ("0/3 nodes are available: 1 node(s) didn't have free ports, 2 node(s) didn't match.", True),
        (
            "0/3 nodes are available: node(s) didn't satisfy plugin(s) [NodeAffinity VolumeBinding] simultaneously.",
            True,
        ),
        ('0/3 nodes are available: persistentvolumeclaim "data" not found.', False),
        ("another scheduler's words", True),
    ],
)
def test_a_pod_that_is_refused_wherever_it_would_go_avoids_no_node(message: str, avoids: bool) -> None:
    pod = a_pod()
    one = refused(pod, "a", message=message)
    hold = Hold(HoldReason.DEVICES_BUSY, "busy")

    assert allowed([pod], one) == ["bc" if avoids else "abc"]
    assert allowed([pod], one, refused(pod, "b")) == ["c" if avoids else "ac"]
    assert refusals.text((one,)) == f"kube-scheduler refused pod p{' on node a' * avoids} ({message})"
    assert refusals.nodes((one,)) == ["a"] * avoids
    assert (refusals.explained(hold, (one,)) == hold) is not avoids


def test_as_many_as_were_bound_may_go_there_again_each_to_one_such_node() -> None:
    some = [a_pod(f"p-{at}") for at in range(4)]
    pod = some[0]

    assert allowed(some, refused(pod, "a", bound=2), refused(pod, "b", bound=1)) == ["ac", "ac", "bc", "c"]


def test_a_pod_keeps_its_own_affinity() -> None:
    here = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
    pod = a_pod(
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}}
    )

    (found,) = refusals.avoiding([PodDemand(pod=pod)], (refused(pod, "a"),))

    assert found.pod.affinity is not None
    matches = {(node, zone) for node in NODES for zone in "yz" if found.pod.affinity.matches(node, {"zone": zone})}
    assert matches == {("b", "z"), ("c", "z")}


@pytest.mark.parametrize(
    "field",
    [
        "requests",
        "node_selector",
        "tolerations",
        "claims",
        "scheduler",
        "ports",
        "affinity",
        "spread",
        "volumes",
        "features",
    ],
)
def test_pods_that_ask_for_something_else_have_another_shape(field: str) -> None:
    others = {
        "requests": a_pod(containers=[{"resources": {"requests": {"cpu": "2"}}}]),
        "node_selector": a_pod(nodeSelector={"disk": "ssd"}),
        "tolerations": a_pod(tolerations=[{"operator": "Exists"}]),
        "claims": a_pod(resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}]),
        "scheduler": a_pod(schedulerName="other"),
        "ports": a_pod(containers=[{"ports": [{"hostPort": 80}]}]),
        "affinity": a_pod(affinity={"podAntiAffinity": {REQUIRED: [{"topologyKey": "rack", "labelSelector": {}}]}}),
        "spread": a_pod(topologySpreadConstraints=[{"topologyKey": "rack", "maxSkew": 1}]),
        "volumes": a_pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]),
        "features": a_pod(hostNetwork=True, hostUsers=False),
    }

    assert refusals.shape(others[field]) != refusals.shape(a_pod())


@pytest.mark.parametrize("zone", [None, "z"])
def test_a_pod_that_muster_has_pinned_has_the_shape_of_the_one_made_in_its_place(zone: str | None) -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}] if zone else []
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    pod = a_pod(affinity=required) if zone else a_pod()
    pinned = replace(pod, affinity=pod_patch.kept_to(pod.affinity, (pod_patch.on_node(NodeName("a")),)))

    assert refusals.shape(replace(pinned, meta=replace(pod.meta, name="other"))) == refusals.shape(pod)
    assert refusals.shape(replace(pod, node_selector={names.HOSTNAME: "a"})) == refusals.shape(pod)


def test_the_newest_refusal_of_a_node_counts_and_the_oldest_are_dropped() -> None:
    pod = a_pod()
    many = tuple(refused(pod, f"n{at}") for at in range(refusals.MOST))

    again = refusals.merged((refused(pod, "a"), refused(pod, "b")), (refused(pod, "a", minutes=5),))

    assert [(one.node, one.since - NOON) for one in again] == [("b", 0 * MINUTE), ("a", 5 * MINUTE)]
    assert refusals.merged((refused(pod, "a"),), many) == many


def test_the_words_of_kube_scheduler_are_kept_without_those_of_preemption() -> None:
    message = "0/3 nodes are available: 3 node(s) didn't have free ports. preemption: 0/3 nodes are available: 3 No."

    def said(reason: str, text: str) -> str:
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": text}
        return a_pod(conditions=({"type": "Ready", "message": "x", "reason": "Unschedulable"}, condition)).unschedulable

    assert said("Unschedulable", message) == "0/3 nodes are available: 3 node(s) didn't have free ports."
    assert said("SchedulingGated", message) == ""
    failed = 'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
    assert said("SchedulerError", failed) == failed
    assert said("Unschedulable", "no\x1b[2J\nway") == "no [2J way"
    assert len(said("Unschedulable", "x" * 5000)) == pods.MOST_OF_MESSAGE


def test_the_status_of_a_gang_has_the_latest_refusals_and_gives_them_back() -> None:
    many = tuple(refused(a_pod(), f"n{at}", bound=1, minutes=at) for at in range(20))
    report = GangReport(
        uid=GangUid("g"),
        namespace="team",
        name="g",
        queue=QueueName("q"),
        size=1,
        phase=Phase.EVICTED,
        refused=refusals.written(many),
    )
    status = status_encoding.gang_status(report, {}, now=NOON)
    read = gangs.decode({"metadata": {"name": "g", "namespace": "team"}, "spec": {"queue": "q"}, "status": status})

    assert read.refused == report.refused == refusals.written(many[-refusals.MOST_WRITTEN :])
    assert len(read.refused) == refusals.MOST_WRITTEN
