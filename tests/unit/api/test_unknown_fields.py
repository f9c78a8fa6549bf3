"""Fields that no Kubernetes knows, with the name that was meant."""

import copy
from typing import Any

import pytest

from admission.api.schemas import crds, known_fields
from admission.api.schemas.fields import Schema
from admission.api.validation.openapi import unknown_fields
from admission.api.values.decoding import MAX_PROBLEMS
from admission.workloads import template_labels
from admission.workloads.kinds import catalog
from tests.unit.api import refused, unknown
from tests.unit.api.cases import Json


def own(kind: str, **spec: Any) -> Json:
    return {"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": "good"}, "spec": spec}


CLAIM = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "counts": 2}}]}}

OWN = {
    "a queue's misspelt limit": (own("Queue", quotas=[{"borowingLimit": 0}]), "spec.quotas[0].borowingLimit"),
    "a queue's misspelt preemption": (own("Queue", preemtion={}), "spec.preemtion"),
    "a meter's field that takes none": (own("Meter", sources=[{"count": {"of": 1}}]), "spec.sources[0].count.of"),
    "a gang's misspelt size": (own("Gang", sizes=3), "spec.sizes"),
    "a claim that a policy keeps": (
        own("ClaimPolicy", templates=[{"name": "one", "spec": CLAIM}]),
        "spec.templates[0].spec.devices.requests[0].exactly.counts",
    ),
    "a toleration that a policy keeps": (
        own("ClaimPolicy", defaults=[{"tolerations": [{"effects": "NoSchedule"}]}]),
        "spec.defaults[0].tolerations[0].effects",
    ),
    "a device that a shape keeps": (
        own("NodeShape", resourceSlices=[{"driver": "gpu", "devices": [{"name": "gpu-0", "atributes": {}}]}]),
        "spec.resourceSlices[0].devices[0].atributes",
    ),
    "metadata of an object of Muster's": (
        {**own("Queue"), "metadata": {"name": "good", "labls": {}}},
        "metadata.labls",
    ),
}


@pytest.mark.parametrize(("obj", "field", "meant"), unknown.KUBERNETES.values(), ids=unknown.KUBERNETES)
def test_a_field_that_a_kind_of_kubernetes_does_not_have_is_told_with_the_nearest(
    obj: Json, field: str, meant: str
) -> None:
    """Or, of a field that an earlier DRA API had, with what is written today."""
    ending = f"; did you mean {meant}?" if meant else ""
    said = f"is an unknown field{ending}"
    if meant.startswith("write "):
        said = f"is no field today: {meant}; `muster convert` does what it can"

    for release in ("1.36", "1.37", ""):
        assert [(one.field, one.message) for one in unknown_fields.of_object(obj, release=release)] == [(field, said)]


def test_of_a_request_in_the_form_before_v1_the_command_that_converts_it_is_named() -> None:
    obj = unknown.claim({**unknown.GPU, "counts": 2})

    flat, misspelt = unknown_fields.of_object(obj)
    assert (flat.field, flat.message) == (
        f"{unknown.REQUEST}.deviceClassName",
        f"stands in {unknown.REQUEST}.exactly today; `muster convert` writes the request so",
    )
    assert "convert" not in misspelt.message


def of(api_version: str, kind: str, **spec: Any) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "good"}, "spec": spec}


JOB_TEMPLATE = {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}, "metadata": {"labls": {}}}}}

WORKLOADS = {
    "a policy of a JobSet": (
        of("jobset.x-k8s.io/v1alpha2", "JobSet", startupPolicys={}),
        "spec.startupPolicys",
        "startupPolicy",
    ),
    "a part of a JobSet, whose pod template is judged elsewhere": (
        of(
            "jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=[{"name": "a", "replica": 2, "template": JOB_TEMPLATE}]
        ),
        "spec.replicatedJobs[0].replica",
        "replicas",
    ),
    "the replicas of an MPIJob": (
        of("kubeflow.org/v2beta1", "MPIJob", mpiReplicaSpecs={"Worker": {"replica": 4}}),
        "spec.mpiReplicaSpecs[Worker].replica",
        "replicas",
    ),
    "a policy of a PyTorchJob beside the one that has it": (
        of("kubeflow.org/v1", "PyTorchJob", suspend=True),
        "spec.suspend",
        "spec.runPolicy.suspend",
    ),
    "workers of a RayJob": (
        of("ray.io/v1", "RayJob", rayClusterSpec={"workerGroupSpec": []}),
        "spec.rayClusterSpec.workerGroupSpec",
        "workerGroupSpecs",
    ),
    "the nodes of a TrainJob beside its trainer": (
        of("trainer.kubeflow.org/v1alpha1", "TrainJob", runtimeRef={"name": "torch"}, numNodes=2),
        "spec.numNodes",
        "spec.trainer.numNodes",
    ),
    "workers of a RayService": (
        of("ray.io/v1", "RayService", rayClusterConfig={"workerGroupSpec": []}),
        "spec.rayClusterConfig.workerGroupSpec",
        "workerGroupSpecs",
    ),
    "the template of a ScheduledSparkApplication": (
        of("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication", templates={}),
        "spec.templates",
        "template",
    ),
    "the size of a LeaderWorkerSet's groups": (
        of("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", size=4),
        "spec.size",
        "spec.leaderWorkerTemplate.size",
    ),
    "a field of pods in the spec of a JobSet": (
        of("jobset.x-k8s.io/v1alpha2", "JobSet", nodeSelector={}),
        "spec.nodeSelector",
        "spec.replicatedJobs[].template.spec.template.spec.nodeSelector",
    ),
    "a field of pods beside a template of Volcano's": (
        of("batch.volcano.sh/v1alpha1", "Job", tasks=[{"containers": []}]),
        "spec.tasks[0].containers",
        "spec.tasks[0].template.spec.containers",
    ),
    "a field of pods in the spec of a RayCluster": (
        of("ray.io/v1", "RayCluster", tolerations=[]),
        "spec.tolerations",
        "spec.headGroupSpec.template.spec.tolerations or spec.workerGroupSpecs[].template.spec.tolerations",
    ),
}


@pytest.mark.parametrize(("obj", "field", "meant"), WORKLOADS.values(), ids=WORKLOADS)
def test_a_field_that_a_workload_of_another_project_does_not_have_is_doubted(obj: Json, field: str, meant: str) -> None:
    (found,) = unknown_fields.of_workload(obj)

    assert found.field == field
    assert f"is an unknown field; did you mean {meant}? (fields are known as of " in found.message
    assert unknown_fields.of_object(obj) == ()


def test_the_fields_of_each_kind_of_workload_that_is_read_are_known() -> None:
    """Of Argo's workflows, whose templates have pods among much else, only the labels are read."""
    versions = {
        **{of: tuple(one.versions) for of, one in catalog.BY_GROUP.items()},
        **{of: one.versions for of, one in template_labels.BY_GROUP.items()},
    }
    read = {
        (f"{group}/{version}".removeprefix("/"), kind)
        for (group, kind), known in versions.items()
        for version in known
        if group != "argoproj.io"
    }

    assert {one for one in read if not (known_fields.type_of_workload(*one) or known_fields.type_of(*one))} == set()


@pytest.mark.parametrize(("obj", "field"), OWN.values(), ids=OWN)
def test_a_field_that_a_kind_of_musters_does_not_have_is_told(obj: Json, field: str) -> None:
    assert [one.field for one in unknown_fields.of_object(obj)] == [field]


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ({"cohortName": "research"}, "spec.parent"),
        ({"flavorFungibility": {}}, "spec.preferences"),
        ({"preemption": {"reclaimWithinCohort": "Any"}}, "spec.preemption.reclaim"),
        ({"quotas": [{"nominalQuota": 8}]}, "spec.quotas[].nominal"),
    ],
    ids=str,
)
def test_a_field_of_kueue_is_told_with_what_a_queue_calls_it(spec: Json, meant: str) -> None:
    (told,) = unknown_fields.of_object(own("Queue", **spec))

    assert told.message == f"is an unknown field; did you mean {meant}?"


def test_what_a_queue_calls_the_fields_of_kueue_exists() -> None:
    for path in unknown_fields.OF_KUEUE.values():
        above, _, field = f"Queue.{path.replace('[]', '')}".rpartition(".")
        assert field in known_fields.fields_of(above)


def test_what_is_in_order_has_no_unknown_field() -> None:
    assert {name: unknown_fields.of_object(obj) for name, obj in refused.GOOD.items()} == dict.fromkeys(
        refused.GOOD, ()
    )


def test_a_field_that_another_release_has_is_told_so() -> None:
    obj = unknown.pod(evictionResponders=[])

    assert unknown_fields.of_object(obj, release="1.37") == ()
    assert unknown_fields.of_object(obj) == ()
    (told,) = unknown_fields.of_object(obj, release="1.36")
    assert (told.field, told.message) == (
        "spec.evictionResponders",
        "is a field that Kubernetes 1.36 does not have; another release has it",
    )


def test_keys_that_an_author_chooses_and_objects_of_others_are_free() -> None:
    parameters = {"apiVersion": "gpu.example.com/v1", "kind": "Config", "anything": {"goes": [1]}}
    config = [{"opaque": {"driver": "gpu.example.com", "parameters": parameters}}]
    obj = unknown.claim({"exactly": {**unknown.GPU, "capacity": {"requests": {"memory": "1Gi"}}}}, config=config)

    assert unknown_fields.of_object(obj) == ()


def test_a_kind_that_is_not_known_is_not_judged() -> None:
    assert unknown_fields.of_object({"apiVersion": "example.com/v1", "kind": "Pod", "spec": {"x": 1}}) == ()


@pytest.mark.parametrize("wrong", [None, 1, "text", [], [{"x": 1}]], ids=str)
def test_what_is_no_object_is_left_to_others(wrong: Any) -> None:
    obj = copy.deepcopy(unknown.pod())
    obj["spec"] = wrong

    assert unknown_fields.of_object(obj) == ()


def test_at_most_a_hundred_are_told_and_names_are_cut() -> None:
    obj = unknown.pod(**{f"{number}{'x' * 500}": 1 for number in range(1000)})

    found = unknown_fields.of_object(obj)

    assert len(found) == MAX_PROBLEMS
    assert max(len(one.field) for one in found) <= len("spec.") + unknown_fields.LONGEST_NAME


def test_what_a_schema_keeps_as_written_is_of_a_known_type() -> None:
    """A part that keeps unknown fields, and is not described by a type of Kubernetes', would hide a typo."""
    kept = {
        path
        for definition in crds.all_definitions().values()
        for path in _kept(crds.schema_of(definition), definition["spec"]["names"]["kind"])
    }

    outermost = {path for path in kept if not any(path.startswith(f"{other}.") for other in kept)}
    # Numbers behind a reason, whose names are those of docs/reasons.md.
    assert outermost - {"Gang.status.hold.details"} == set(known_fields.KEPT)


def _kept(schema: Schema, path: str) -> set[str]:
    found = {path} if schema.get("x-kubernetes-preserve-unknown-fields") else set()
    for key in ("items", "additionalProperties"):
        if key in schema:
            found |= _kept(schema[key], path)
    for name, inner in schema.get("properties", {}).items():
        found |= _kept(inner, f"{path}.{name}")
    return found
