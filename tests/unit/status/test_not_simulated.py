"""What of a gang's pods is not judged is said by name."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import jobs, pods
from admission.api.storage import persistent_volumes
from admission.api.storage.storage import Storage
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.status import not_simulated
from admission.workloads.kinds import jobset, podgroup


def a_pod(name: str, *volumes: dict[str, Any], phase: str = "Pending") -> pods.Pod:
    return pods.decode({"metadata": {"name": name}, "spec": {"volumes": list(volumes)}, "status": {"phase": phase}})


def claim(name: str) -> dict[str, Any]:
    return {"name": "v", "persistentVolumeClaim": {"claimName": name}}


def test_volumes_that_bind_pods_to_nodes_are_named_with_their_filters() -> None:
    found = not_simulated.of_pods([a_pod("p-0", claim("data"), {"name": "tmp", "emptyDir": {}}), a_pod("p-1")])

    assert found == (
        "persistent volume claim data of pod p-0 (VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits)",
    )


def test_an_ephemeral_volume_is_named_too_and_a_shared_claim_once() -> None:
    own = {"name": "own", "ephemeral": {"volumeClaimTemplate": {}}}
    found = not_simulated.of_pods([a_pod("p-0", claim("data"), own), a_pod("p-1", claim("data"))])

    assert [text.partition(" (")[0] for text in found] == [
        "persistent volume claim data of pod p-0",
        "ephemeral volume own of pod p-0",
    ]


def test_many_volumes_are_counted_and_those_of_finished_pods_are_not() -> None:
    gang = [a_pod(f"p-{at}", claim(f"data-{at}")) for at in range(10)]
    found = not_simulated.of_pods([*gang, a_pod("done", claim("old"), phase="Succeeded")])

    assert len(found) == not_simulated.MOST + 1
    assert found[-1].startswith("2 more volumes")


def test_a_scheduler_that_is_not_predicted_is_named_once_unless_the_settings_know_it() -> None:
    gang = [replace(a_pod(f"p-{at}"), scheduler="packing") for at in range(2)]
    bound = replace(a_pod("bound"), scheduler="volcano", node=NodeName("a"))

    assert not_simulated.of_pods([*gang, bound, a_pod("q")]) == (
        "what scheduler packing asks of pod p-0, beyond kube-scheduler's defaults",
    )
    assert not_simulated.of_pods(gang, schedulers={"packing"}) == ()


def test_a_gate_of_others_on_pods_that_do_not_exist_yet_is_named() -> None:
    gates = (names.GATE, "example.com/other")
    pod = replace(a_pod("p-0"), gates=gates)
    expected = replace(pod, meta=replace(pod.meta, uid=names.expected_pod(Uid("u"), 0)))

    assert not_simulated.of_pods([expected, expected]) == (
        "scheduling gate example.com/other of pod p-0, which Muster does not open",
    )
    assert not_simulated.of_pods([pod]) == ()


def test_a_label_by_which_pods_are_selected_and_that_is_not_known_yet_is_named() -> None:
    def selecting(*expressions: dict[str, Any]) -> pods.Pod:
        term = {"topologyKey": "rack", "labelSelector": {"matchExpressions": list(expressions)}}
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        labels = {"ray.io/cluster": names.unknown_label("train")}
        return pods.decode({"metadata": {"name": "p", "labels": labels}, "spec": {"affinity": affinity}})

    by_name = {"key": "ray.io/cluster", "operator": "In", "values": ["train-x7k2p"]}
    any_one = {"key": "ray.io/cluster", "operator": "Exists"}

    assert not_simulated.of_pods([selecting(by_name)]) == (
        "label ray.io/cluster of pod p, by which pods are selected: it is known once the pod exists",
    )
    assert not_simulated.of_pods([selecting(any_one)]) == ()


@pytest.mark.parametrize("constraints", [None, {"topology": [{"key": "rack"}]}], ids=["free", "constrained"])
def test_the_constraints_of_a_pod_group_are_named_while_a_pod_waits(constraints: dict[str, Any] | None) -> None:
    spec = {} if constraints is None else {"schedulingConstraints": constraints}
    group = podgroup.GANGS.decode({"metadata": {"name": "pg", "namespace": "team"}, "spec": spec})
    body = {"metadata": {"name": "p", "namespace": "team"}, "spec": {"schedulingGroup": {"podGroupName": "pg"}}}
    waiting = pods.decode(body)
    named = ("spec.schedulingConstraints of PodGroup pg: say the topology to Muster as well",)

    assert not_simulated.of_pods([waiting], pod_groups={"team/pg": group}) == (named if constraints else ())
    assert not_simulated.of_pods([replace(waiting, node=NodeName("a"))], pod_groups={"team/pg": group}) == ()


@pytest.mark.parametrize("volume", ["", "pv"], ids=["it waits for its pod", "it is made at once"])
def test_volumes_of_pods_that_follow_are_named_if_nobody_knows_where_they_will_be(volume: str) -> None:
    annotations = {jobset.EXCLUSIVE: "rack"}
    job = {"name": "part", "template": {"spec": {"parallelism": 2, "template": {}}}}
    workload = jobset.KINDS[0].decode(
        {"metadata": {"name": "set", "annotations": annotations}, "spec": {"replicatedJobs": [job]}}
    )
    leader = a_pod("p-0", {"name": "own", "ephemeral": {}})
    told = replace(leader.meta, namespace="team", labels={jobset.REPLICATED_JOB: "part"}, annotations={jobs.INDEX: "0"})
    meta = {"name": "p-0-own", "namespace": "team"}
    own = persistent_volumes.decode_claim({"metadata": meta, "spec": {"volumeName": volume}})
    found = not_simulated.of_volumes_of_followers(
        [replace(leader, meta=told)], workload, Storage(claims={own.meta.key: own})
    )

    named = (f"ephemeral volume own of the pods that follow pod p-0 ({not_simulated.FILTERS})",)
    assert found == (named if volume else ())


def test_the_runtime_class_of_pods_that_do_not_exist_yet_is_named() -> None:
    pod = replace(a_pod("p-0"), runtime_class="kata")
    expected = replace(pod, meta=replace(pod.meta, uid=names.expected_pod(Uid("u"), 0)))

    assert not_simulated.of_pods([expected]) == (f"RuntimeClass kata of pod p-0: {not_simulated.ADDED_BY_CLASS}",)
    assert not_simulated.of_pods([pod]) == ()
