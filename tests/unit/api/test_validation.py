"""Objects from files are refused for what the API server refuses, with the field that is at fault."""

import json

import pytest

from admission.api.validation import objects
from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.simulation import validation
from tests.unit.api import claims, natives, refused, workloads
from tests.unit.api.cases import Case, Json

KNOWN = refused.REFUSED | refused.STRICTER


@pytest.mark.parametrize(("obj", "field"), KNOWN.values(), ids=KNOWN)
def test_an_invalid_object_has_just_the_problem_of_its_invalid_field(obj: Json, field: str) -> None:
    assert [problem.field for problem in objects.problems(obj["kind"], obj)] == [field]


NATIVE, TAKEN = natives.REFUSED | workloads.REFUSED, natives.GOOD | workloads.GOOD


@pytest.mark.parametrize(("obj", "field"), NATIVE.values(), ids=NATIVE)
def test_an_invalid_native_object_has_the_problem_of_its_invalid_field(obj: Json, field: str) -> None:
    found = validation.of_any_kind(obj, compatibility.profile(Release.V1_37))

    assert [problem.field for problem in found] == [field]


@pytest.mark.parametrize("obj", TAKEN.values(), ids=TAKEN)
def test_a_valid_native_object_has_no_problems(obj: Json) -> None:
    assert validation.of_any_kind(obj, compatibility.profile(Release.V1_37)) == ()


TEMPLATES: dict[str, tuple[str, Json]] = {
    "jobset.x-k8s.io/v1alpha2 JobSet": (
        "spec.replicatedJobs[0].template.spec.template.spec",
        {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": 0}}}]},
    ),
    "leaderworkerset.x-k8s.io/v1 LeaderWorkerSet": (
        "spec.leaderWorkerTemplate.workerTemplate.spec",
        {"leaderWorkerTemplate": {"workerTemplate": 0, "size": 2}},
    ),
    "kubeflow.org/v2beta1 MPIJob": (
        "spec.mpiReplicaSpecs.Worker.template.spec",
        {"mpiReplicaSpecs": {"Worker": {"template": 0}}},
    ),
}
"""Kinds of other projects: the path of the template, and a spec with 0 for it."""


@pytest.mark.parametrize(("path", "spec"), TEMPLATES.values(), ids=TEMPLATES)
def test_templates_of_other_projects_are_judged_as_the_pods_that_they_make(
    path: str, spec: Json, request: pytest.FixtureRequest
) -> None:
    version, kind = request.node.callspec.id.split(" ")
    template = natives.job(pod={"schedulingGates": [{"name": "a b"}]})["spec"]["template"]
    body = json.loads(json.dumps(spec).replace(": 0", f": {json.dumps(template)}"))

    found = validation.of_any_kind(natives.made(version, kind, spec=body), compatibility.profile(Release.V1_37))

    assert [problem.field for problem in found] == [f"{path}.schedulingGates[0]"]


def test_a_jobset_is_judged_by_the_jobs_that_it_makes() -> None:
    """They are Indexed by default, and their pods end by default."""
    spec = {"parallelism": 2, "template": natives.job(pod={"restartPolicy": None})["spec"]["template"]}
    jobset = natives.made(
        "jobset.x-k8s.io/v1alpha2", "JobSet", spec={"replicatedJobs": [{"name": "a", "template": {"spec": spec}}]}
    )

    found = validation.of_any_kind(jobset, compatibility.profile(Release.V1_37))

    assert [problem.field for problem in found] == ["spec.replicatedJobs[0].template.spec.completions"]


def test_volumes_that_a_controller_adds_may_be_mounted() -> None:
    container = {"name": "main", "image": "train", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    claims_ = [{"metadata": {"name": "data"}, "spec": natives.claim()["spec"]}]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template, "volumeClaimTemplates": claims_}

    found = validation.of_any_kind(
        natives.made("apps/v1", "StatefulSet", spec=spec), compatibility.profile(Release.V1_37)
    )

    jobset = {
        "volumeClaimPolicies": [{"templates": claims_}],
        "replicatedJobs": [{"name": "a", "template": {"spec": {"template": {"spec": {"containers": [container]}}}}}],
    }
    assert found == ()
    assert (
        validation.of_any_kind(
            natives.made("jobset.x-k8s.io/v1alpha2", "JobSet", spec=jobset), compatibility.profile(Release.V1_37)
        )
        == ()
    )


def test_volumes_are_not_missed_where_a_controller_may_add_any() -> None:
    """KubeRay adds the token of authentication by itself, and Spark's operator what its spec says elsewhere."""
    container = {"name": "head", "image": "ray", "volumeMounts": [{"name": "ray-token", "mountPath": "/token"}]}
    head = {"template": {"spec": {"containers": [container]}}}
    cluster = natives.made("ray.io/v1", "RayCluster", spec={"headGroupSpec": head})

    assert validation.of_any_kind(cluster, compatibility.profile(Release.V1_37)) == ()


@pytest.mark.parametrize("obj", refused.GOOD.values(), ids=refused.GOOD)
@pytest.mark.parametrize("release", Release)
def test_a_valid_object_has_no_problems(obj: Json, release: Release) -> None:
    assert validation.problems(obj["kind"], obj, compatibility.profile(release)) == ()


@pytest.mark.parametrize("case", refused.CEL.values(), ids=refused.CEL)
@pytest.mark.parametrize("release", Release)
def test_cel_that_does_not_compile_is_a_problem_of_its_field(case: Case, release: Release) -> None:
    found = validation.problems(case.obj["kind"], case.obj, compatibility.profile(release))

    assert [problem.field for problem in found] == [case.field]


def test_cel_that_is_too_long_is_not_compiled() -> None:
    case = claims.CLAIMS["a selector of too much CEL"]

    found = validation.problems("ResourceClaim", case.obj, compatibility.profile(Release.V1_37))

    assert [problem.field for problem in found] == [case.field]


def test_every_problem_of_an_object_is_reported_once() -> None:
    bad = claims.exactly(count=-1, allocationMode="x", tolerations="y", deviceClassName="A")

    found = objects.problems("ResourceClaim", claims.claim(bad, bad, constraints=[{"requests": ["z"]}]))

    asked = [f"spec.devices.requests[{number}].exactly" for number in (0, 1)]
    fields = [f"{one}.{name}" for one in asked for name in ("deviceClassName", "allocationMode", "tolerations")]
    assert sorted(problem.field for problem in found) == sorted(
        [
            *fields,
            "spec.devices.requests[1].name",
            "spec.devices.constraints[0]",
            "spec.devices.constraints[0].requests[0]",
        ]
    )


def test_an_object_of_another_kind_has_no_problems() -> None:
    assert objects.problems("Node", {"spec": 3}) == ()


UID = "5a5f0c4e-0000-4000-8000-000000000000"
RESULT = {"request": "r", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
CONSUMER = {"resource": "pods", "name": "p", "uid": UID}
DEVICES = "status.allocation.devices"
STATUSES = {
    "33 results": ({"allocation": {"devices": {"results": [RESULT] * 33}}}, f"{DEVICES}.results"),
    "a result of an unknown request": (
        {"allocation": {"devices": {"results": [{**RESULT, "request": "s"}]}}},
        f"{DEVICES}.results[0].request",
    ),
    "a result without a device": (
        {"allocation": {"devices": {"results": [{**RESULT, "device": ""}]}}},
        f"{DEVICES}.results[0].device",
    ),
    "a result of a driver that is none": (
        {"allocation": {"devices": {"results": [{**RESULT, "driver": "a_b"}]}}},
        f"{DEVICES}.results[0].driver",
    ),
    "a share that is none": (
        {"allocation": {"devices": {"results": [{**RESULT, "shareID": "1"}]}}},
        f"{DEVICES}.results[0].shareID",
    ),
    "a negative consumption": (
        {"allocation": {"devices": {"results": [{**RESULT, "consumedCapacity": {"memory": "-1"}}]}}},
        f"{DEVICES}.results[0].consumedCapacity.memory",
    ),
    "a bad node selector": (
        {"allocation": {"nodeSelector": {"nodeSelectorTerms": []}}},
        "status.allocation.nodeSelector.nodeSelectorTerms",
    ),
    "257 consumers": (
        {"reservedFor": [{**CONSUMER, "uid": f"u{number}"} for number in range(257)]},
        "status.reservedFor",
    ),
    "a consumer twice": ({"reservedFor": [CONSUMER, CONSUMER]}, "status.reservedFor[1].uid"),
    "a consumer without a name": ({"reservedFor": [{**CONSUMER, "name": ""}]}, "status.reservedFor[0].name"),
}


@pytest.mark.parametrize(("status", "field"), STATUSES.values(), ids=STATUSES)
def test_an_invalid_status_is_a_problem_of_its_field(status: Json, field: str) -> None:
    found = objects.problems("ResourceClaim", {**claims.claim(), "status": status})

    assert [problem.field for problem in found] == [field]


def test_a_valid_status_has_no_problems() -> None:
    status = {"allocation": {"devices": {"results": [{**RESULT, "shareID": UID}]}}, "reservedFor": [CONSUMER]}

    assert objects.problems("ResourceClaim", {**claims.claim(), "status": status}) == ()


POD_GROUPS: dict[str, tuple[Json, list[str]]] = {
    "a gang": ({"schedulingPolicy": {"gang": {"minCount": 2}}}, []),
    "pods that start one by one": ({"schedulingPolicy": {"basic": {}}}, []),
    "no policy": (
        {"schedulingPolicy": {}},
        ["spec.schedulingPolicy: Invalid value: must specify one of: `basic`, `gang`"],
    ),
    "two policies": (
        {"schedulingPolicy": {"basic": {}, "gang": {"minCount": 2}}},
        ['spec.schedulingPolicy: Invalid value: "{basic, gang}": must specify exactly one of: `basic`, `gang`'],
    ),
    "a gang of none": (
        {"schedulingPolicy": {"gang": {"minCount": 0}}},
        ["spec.schedulingPolicy.gang.minCount: Required value"],
    ),
    "a gang of fewer than none": (
        {"schedulingPolicy": {"gang": {"minCount": -1}}},
        ["spec.schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1"],
    ),
    "a claim of its own": (
        {"schedulingPolicy": {"basic": {}}, "resourceClaims": [{"name": "a", "resourceClaimName": "a"}]},
        [],
    ),
    "a claim of no name": (
        {"schedulingPolicy": {"basic": {}}, "resourceClaims": [{"name": "a"}]},
        [
            (
                "spec.resourceClaims[0]: Invalid value: must specify one of: `resourceClaimName`, "
                "`resourceClaimTemplateName`"
            )
        ],
    ),
}


@pytest.mark.parametrize(("spec", "told"), POD_GROUPS.values(), ids=POD_GROUPS)
def test_a_pod_group_is_judged_in_the_words_of_the_api_server(spec: Json, told: list[str]) -> None:
    found = objects.other_problems(natives.made("scheduling.k8s.io/v1beta1", "PodGroup", spec=spec))

    assert [f"{problem.field}: {problem.message}" for problem in found] == told


def test_two_jobs_of_a_jobset_have_two_names() -> None:
    jobs = [{"name": "a", "template": {"spec": {"template": {"spec": {}}}}} for _ in range(2)]
    found = objects.other_problems(natives.made("jobset.x-k8s.io/v1alpha2", "JobSet", spec={"replicatedJobs": jobs}))

    assert [(problem.field, problem.message) for problem in found][:1] == [
        ("spec.replicatedJobs[1]", 'Duplicate value: {"name":"a"}')
    ]
