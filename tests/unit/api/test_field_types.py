"""Values of another type than their field has, in the words of the API server, and how to write them."""

from typing import Any

import pytest

from admission.api.validation.openapi import field_types
from admission.api.values.decoding import MAX_PROBLEMS
from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.errors import Problem
from admission.simulation import manifests, validation
from tests.unit.api import natives, wrong_types
from tests.unit.api.cases import Json

NOW = compatibility.profile(Release.V1_37)


@pytest.mark.parametrize(("obj", "field", "said"), wrong_types.NATIVE.values(), ids=wrong_types.NATIVE)
def test_a_value_of_another_type_is_told_once_as_the_api_server_says_it(obj: Json, field: str, said: str) -> None:
    store = manifests.read([obj], now=None, namespace="default", profile=NOW)

    assert [one for _, error in store.problems for one in error.problems] == [Problem(field, said)]


@pytest.mark.parametrize("obj", wrong_types.GOOD.values(), ids=wrong_types.GOOD)
def test_what_can_be_read_is_not_told(obj: Json) -> None:
    assert validation.wrong_types(obj, NOW) == ()


def test_a_whole_number_with_a_fraction_of_nothing_is_an_integer_as_kubectl_sends_it() -> None:
    assert validation.wrong_types(natives.job(parallelism=2.0), NOW) == ()


TEMPLATE = {"spec": {"containers": [{"name": "m", "image": "i", "env": [{"name": "A", "value": 1}]}]}}
JOBSET = natives.made(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    spec={"replicatedJobs": [{"name": "a", "template": {"spec": {"template": TEMPLATE}}}]},
)


@pytest.mark.parametrize(
    ("obj", "path", "wanted", "given"),
    [
        (JOBSET, "spec.replicatedJobs[0].template.spec.template.spec.containers[0].env[0].value", "string", "integer"),
        (
            natives.made(
                "muster.dev/v1alpha1", "ClaimPolicy", spec={"templates": [{"name": "a", "spec": {"devices": []}}]}
            ),
            "spec.templates[0].spec.devices",
            "object",
            "array",
        ),
        (
            natives.made("example.com/v1", "Other", metadata={"labels": {"a": 1}}),
            "metadata.labels[a]",
            "string",
            "integer",
        ),
    ],
    ids=["a pod template of another project", "what a policy keeps as written", "metadata of any kind"],
)
def test_of_a_custom_resource_the_words_are_those_of_its_schema(obj: Json, path: str, wanted: str, given: str) -> None:
    (told,) = validation.wrong_types(obj, NOW)

    assert told.field == path
    assert told.message.startswith(f'Invalid value: "{given}": {path} in body must be of type {wanted}: "{given}"; ')


def workload(api_version: str, kind: str, **spec: Any) -> Json:
    return natives.made(api_version, kind, spec=spec)


WORKLOADS = {
    "a flag of a JobSet": (
        workload("jobset.x-k8s.io/v1alpha2", "JobSet", suspend="true"),
        "spec.suspend",
        'boolean: "string"; true or false is expected, without quotes (as of jobset v',
    ),
    "the pod template of a JobSet": (
        workload(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            replicatedJobs=[{"name": "a", "template": {"spec": {"template": []}}}],
        ),
        "spec.replicatedJobs[0].template.spec.template",
        'object: "array"; an object is expected (as of jobset v',
    ),
    "the groups of a LeaderWorkerSet": (
        workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leaderWorkerTemplate={"size": 2.5}),
        "spec.leaderWorkerTemplate.size",
        'integer: "number"; an integer is expected (as of lws v',
    ),
    "the processors of a RayJob's entrypoint": (
        workload("ray.io/v1", "RayJob", entrypointNumGpus="1", entrypointNumCpus=0.5),
        "spec.entrypointNumGpus",
        'number: "string"; write it without quotes (as of kuberay v',
    ),
    "the parameters of a RayCluster": (
        workload("ray.io/v1", "RayCluster", headGroupSpec={"rayStartParams": {"num-gpus": 1}}),
        "spec.headGroupSpec.rayStartParams[num-gpus]",
        'string: "integer"; write it in quotes (as of kuberay v',
    ),
    "the replicas of an MPIJob": (
        workload("kubeflow.org/v2beta1", "MPIJob", mpiReplicaSpecs={"Worker": {"replicas": "four"}}),
        "spec.mpiReplicaSpecs[Worker].replicas",
        'integer: "string"; an integer is expected (as of mpi-operator v',
    ),
    "the replicas of a PyTorchJob as a list": (
        workload("kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs=[{"replicas": 2}]),
        "spec.pytorchReplicaSpecs",
        'object: "array"; an object is expected (as of trainer v',
    ),
    "the runtime of a TrainJob by its name alone": (
        workload("trainer.kubeflow.org/v1alpha1", "TrainJob", runtimeRef="torch"),
        "spec.runtimeRef",
        'object: "string"; an object is expected (as of trainer v',
    ),
    "the size of a gang of Volcano's": (
        workload("batch.volcano.sh/v1alpha1", "Job", minAvailable=2**31),
        "spec.minAvailable",
        "int32; an integer from -2147483648 to 2147483647 is expected (as of volcano v",
    ),
    "the memory of a SparkApplication": (
        workload("sparkoperator.k8s.io/v1beta2", "SparkApplication", executor={"memory": 512}),
        "spec.executor.memory",
        'string: "integer"; write it in quotes (as of spark-operator v',
    ),
    "the members of a PodGroup": (
        workload("scheduling.x-k8s.io/v1alpha1", "PodGroup", minMember="3"),
        "spec.minMember",
        'integer: "string"; write it without quotes (as of scheduler-plugins v',
    ),
}


@pytest.mark.parametrize(("obj", "path", "said"), WORKLOADS.values(), ids=WORKLOADS)
def test_a_value_of_another_type_in_a_workload_of_another_project_is_told_once(obj: Json, path: str, said: str) -> None:
    """By the schema of the release that is named; nothing is added where a decoder of Muster reads the field, too."""
    store = manifests.read([obj], now=None, namespace="default", profile=NOW)

    (told,) = (one for _, error in store.problems for one in error.problems if one.field == path)
    assert told.message.startswith("Invalid value: ")
    assert f"{path} in body must be of type {said}" in told.message


@pytest.mark.parametrize("value", [{1, 2}, b"text"], ids=["a set", "bytes"])
def test_what_comes_from_no_json_is_not_judged(value: Any) -> None:
    assert validation.wrong_types(natives.job(parallelism=value), NOW) == ()


def test_at_most_a_hundred_are_told() -> None:
    pod = {"containers": [{"name": "main", "image": "train", "args": [*range(1000)]}]}

    assert len(validation.wrong_types(natives.job(pod=pod), NOW)) == MAX_PROBLEMS


def test_what_an_api_server_has_stored_is_not_asked() -> None:
    obj = natives.job(parallelism="2")
    obj["metadata"]["uid"] = "5a5f0c4e-0000-4000-8000-000000000000"

    assert validation.wrong_types(obj, NOW) == ()


def test_a_field_that_the_release_does_not_have_is_not_judged() -> None:
    obj = natives.job(pod={"evictionResponders": 1})

    assert [one.field for one in validation.wrong_types(obj, NOW)] == ["spec.template.spec.evictionResponders"]
    assert validation.wrong_types(obj, compatibility.profile(Release.V1_36)) == ()


def test_other_problems_stay_beside_a_wrong_type() -> None:
    wrong = (Problem("spec.args[1]", ""),)
    others = [
        Problem(field, "")
        for field in ("spec.args", "spec.args[1]", "spec.args[1].a", "spec.args[0]", "spec", "spec.a")
    ]

    kept = field_types.beside(wrong, tuple(others))

    assert [one.field for one in kept] == ["spec.args[0]", "spec", "spec.a"]
