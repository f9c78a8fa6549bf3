"""What of the input of `muster simulate` is refused, in which versions it may be, and what is left out."""

import copy
import json
from typing import Any

import pytest

from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.simulation import expand as simulation_expand
from tests.unit.api import natives, refused, unknown
from tests.unit.simulation.simulated import expand, job, node, objects, simulate, teams

FLAWS = {
    "a name": ({"apiVersion": "v1", "kind": "Pod"}, "metadata.name"),
    "a shape that is not read": (
        {"apiVersion": "resource.k8s.io/v1alpha2", "kind": "ResourceClaim", "metadata": {"name": "a"}},
        "apiVersion",
    ),
    "a number of pods": (natives.job(parallelism=10**9), "spec.parallelism"),
    "a claim in a template": (
        natives.job(pod={"resourceClaims": [{"name": "gpu"}]}),
        "spec.template.spec.resourceClaims[0]",
    ),
    "a template": (
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"template": {"spec": 1}}},
        "spec.template.spec",
    ),
    "metadata": ({"apiVersion": "v1", "kind": "Node", "metadata": []}, "metadata.name"),
}


REFUSED = refused.REFUSED | refused.STRICTER | refused.CEL


@pytest.mark.parametrize(("obj", "field"), FLAWS.values(), ids=FLAWS)
def test_an_input_problem_names_the_object_and_its_field(obj: dict[str, Any], field: str) -> None:
    cluster_state = expand(teams(), [obj])

    assert [(index, problem.field) for index, error in cluster_state.problems for problem in error.problems] == [
        (3, field)
    ]


def test_input_that_the_api_server_would_refuse_is_refused() -> None:
    """One of each kind: which is refused for which field, `tests/unit/api/test_validation` has one by one."""
    cases = {case.obj["kind"]: case for case in REFUSED.values()}
    expected = {kind: [(3, case.field)] for kind, case in cases.items()}

    found = {
        kind: [
            (index, problem.field)
            for index, error in expand(teams(), [case.obj]).problems
            for problem in error.problems
        ]
        for kind, case in cases.items()
    }

    assert {"ResourceClaim", "ResourceSlice"} <= found.keys()
    assert found == expected


def problems_of(*objects: dict[str, Any], **options: Any) -> list[tuple[int, str]]:
    found = simulation_expand.expand(objects, **options).problems
    return [(index, problem.field) for index, error in found for problem in error.problems]


def test_fields_that_nobody_knows_are_refused_in_every_kind() -> None:
    found = {name: problems_of(obj) for name, (obj, _, _) in unknown.KUBERNETES.items()}

    assert found == {name: [(0, field)] for name, (_, field, _) in unknown.KUBERNETES.items()}


def test_the_profile_says_whose_fields_are_known() -> None:
    obj = unknown.pod(evictionResponders=[])

    assert problems_of(obj, profile=compatibility.profile(Release.V1_37)) == []
    assert problems_of(obj, profile=compatibility.profile(Release.V1_36)) == [(0, "spec.evictionResponders")]


def test_what_an_api_server_has_stored_is_not_judged_by_its_fields() -> None:
    """It comes from `kubectl get`, maybe from a newer Kubernetes, which dropped what it did not know."""
    obj = unknown.pod(newer=[])
    obj["metadata"] = {**obj["metadata"], "uid": "u-1"}

    assert problems_of(obj) == []


@pytest.mark.parametrize(
    ("api_version", "kind", "spec", "field"),
    [
        ("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"template": 0}}},
         "spec.pytorchReplicaSpecs.Worker.template.spec.resourceClaim"),
        ("apps/v1", "Deployment", {"selector": {"matchLabels": {"a": "b"}}, "template": 0},
         "spec.template.spec.resourceClaim"),
        ("argoproj.io/v1alpha1", "Rollout", {"template": 0}, None),
    ],
)  # fmt: skip
def test_pod_templates_of_any_kind_are_judged(api_version: str, kind: str, spec: Any, field: str | None) -> None:
    """Of kinds that are not simulated, too, as long as it is known where they have them."""
    template = (
        '{"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "train"}],'
        ' "resourceClaim": []}}'
    )
    body = json.loads(json.dumps(spec).replace('"template": 0', f'"template": {template}'))
    obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": body}

    assert problems_of(obj) == ([(0, field)] if field else [])


def test_input_that_the_api_server_would_accept_is_accepted() -> None:
    found = {name: expand(teams(), [obj]).problems for name, obj in refused.GOOD.items()}

    assert {name: problems for name, problems in found.items() if problems} == {}


@pytest.mark.parametrize("version", ["v1alpha3", "v1beta1", "v1beta2"])
def test_versions_with_an_equivalent_are_read_as_v1(version: str) -> None:
    (queue, meter, device_class), (template, train) = teams(), job("a", gpus=2)
    today = [queue, meter, device_class, template, train, *node("one", 2)]
    earlier = copy.deepcopy(today)
    for one in earlier:
        if one["apiVersion"] == "resource.k8s.io/v1":
            one["apiVersion"] = f"resource.k8s.io/{version}"
            if version != "v1beta2":
                _as_before(one, has_values=version == "v1beta1")

    assert earlier != today
    assert simulate(earlier).gangs == simulate(today).gangs


def _as_before(obj: dict[str, Any], *, has_values: bool) -> None:
    """Write an object in the shape of v1beta1, or without the values of capacities as v1alpha3."""
    for device in obj["spec"].get("devices", ()) if obj["kind"] == "ResourceSlice" else ():
        basic = {name: device.pop(name) for name in [*device] if name != "name"}
        if not has_values:
            basic["capacity"] = {name: one["value"] for name, one in basic.get("capacity", {}).items()}
        device["basic"] = basic
    for request in obj["spec"]["spec"]["devices"]["requests"] if obj["kind"] == "ResourceClaimTemplate" else ():
        request.update(request.pop("exactly"))


def test_what_a_version_with_an_equivalent_said_otherwise_is_refused() -> None:
    spec = {"controller": "gpu.example.com", "devices": {}}
    claim = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourceClaim", "metadata": {"name": "a"}, "spec": spec}

    assert problems_of(claim) == [(0, "spec.controller")]


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClass"])
def test_a_version_without_an_equivalent_names_the_command_that_converts(kind: str) -> None:
    old = {"apiVersion": "resource.k8s.io/v1alpha2", "kind": kind, "metadata": {"name": "a"}}

    ((_, error),) = expand([old]).problems

    assert "`muster convert`" in str(error)


def test_kinds_that_are_not_simulated_are_noted() -> None:
    service = objects("{apiVersion: v1, kind: Service, metadata: {name: web, namespace: a}}")

    assert expand(service).notes == ("Service a/web (v1) is left out: it is not simulated",)


def test_a_repeated_input_object_is_noted_and_the_last_counts() -> None:
    cluster_state = expand(teams(quota=1), teams(quota=2))

    assert cluster_state.notes[0] == "Queue team stands more than once; the last one counts"
    assert [quota.nominal for queue in cluster_state.snapshot.queues.values() for quota in queue.quotas] == [2]
