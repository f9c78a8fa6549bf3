"""ResourceQuotas as Muster's: each key is counted by a Meter, or told."""

from typing import Any

import pytest

from admission.conversion.findings import Level
from admission.conversion.queues import resource_quotas
from admission.simulation import expand, lint, offline
from tests.unit.conversion.test_kueue import JOBS, a_job, objects


def a_quota(hard: dict[str, Any], *, name: str = "quota", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard, **spec}}


DEVICES = {"sources": [{"deviceClasses": ["gpu.example.com"], "count": {}}]}
KEYS: dict[str, tuple[Any, str, str, dict[str, Any]]] = {
    "requests.cpu": ("1500m", "cpu", "1500", {"resources": [{"name": "cpu", "per": "1m"}]}),
    "cpu": (2, "cpu", "2000", {"resources": [{"name": "cpu", "per": "1m"}]}),
    "requests.memory": ("1Gi", "memory", "1Gi", {"resources": [{"name": "memory"}]}),
    "hugepages-2Mi": ("4Mi", "hugepages-2mi", "4Mi", {"resources": [{"name": "hugepages-2Mi"}]}),
    "pods": (8, "pods", "8", {"resources": [{"name": "pods"}]}),
    "requests.nvidia.com/gpu": (4, "nvidia.com-gpu", "4", {"resources": [{"name": "nvidia.com/gpu"}]}),
    "gpu.example.com.deviceclass.resource.k8s.io/devices": (4, "gpu.example.com", "4", DEVICES),
    "requests.deviceclass.resource.kubernetes.io/gpu.example.com": (4, "gpu.example.com", "4", DEVICES),
    "count/resourceclaims.resource.k8s.io": (
        3,
        "claims",
        "3",
        {"sources": [{"deviceClasses": ["gpu.example.com"], "claims": {}}]},
    ),
}
DEVICE_CLASS = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.example.com"}}


@pytest.mark.parametrize(("key", "case"), KEYS.items(), ids=KEYS)
async def test_a_key_that_muster_counts_is_a_meter_and_a_quota_of_the_namespaces_queue(key: str, case: Any) -> None:
    value, meter, nominal, counted = case

    made = resource_quotas.convert([a_quota({key: value}), DEVICE_CLASS])

    (of_meter, queue) = made.objects
    assert of_meter["metadata"]["name"] == meter
    assert {name: part for name, part in of_meter["spec"].items() if name != "unit"} == counted
    assert queue["spec"] == {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team"}},
        "default": True,
        "unmeteredClasses": "Allow",
        "quotas": [{"meter": meter, "nominal": nominal}],
    }
    told = [one.message for found in made.findings for one in found.found if one.level is not Level.CHANGED]
    assert told == [f"a ResourceQuota refuses pods that request no {meter}; here they are free of it"] * (
        meter in {"cpu", "memory"}
    )
    assert (await lint.lint([*objects(JOBS), *made.objects])).remarks == ()


LEFT = {
    "limits": ({"limits.cpu": 1}, {}, "spec.hard[limits.cpu]", "may stay"),
    "objects": ({"count/jobs.batch": 1}, {}, "spec.hard[count/jobs.batch]", "may stay"),
    "no number": ({"pods": "many"}, {}, "spec.hard[pods]", "many"),
    "claims of classes that nobody knows": (
        {"count/resourceclaims.resource.k8s.io": 1},
        {},
        "spec.hard[count/resourceclaims.resource.k8s.io]",
        "DeviceClasses",
    ),
    "scopes": ({"pods": 1}, {"scopes": ["BestEffort"]}, "spec.scopes", "muster.dev/queue"),
}


@pytest.mark.parametrize(("hard", "more", "field", "told"), LEFT.values(), ids=LEFT)
def test_what_has_no_counterpart_is_told(hard: Any, more: Any, field: str, told: str) -> None:
    (found,) = resource_quotas.convert([a_quota(hard, **more)]).findings

    assert [(one.field, told in one.message) for one in found.found if one.level is Level.LEFT] == [(field, True)]


def test_of_several_quotas_of_a_namespace_the_smallest_counts() -> None:
    made = resource_quotas.convert([a_quota({"pods": 8}), a_quota({"pods": 4, "cpu": 1}, name="other")])

    assert made.objects[-1]["spec"]["quotas"] == [
        {"meter": "pods", "nominal": "4"},
        {"meter": "cpu", "nominal": "1000"},
    ]


GPU: dict[str, Any] = {"deviceClassName": "gpu.example.com"}
WORST_CASES = {
    "a count": ({"exactly": {**GPU, "count": 2}}, []),
    "alternatives": ({"firstAvailable": [{"name": "two", **GPU, "count": 2}, {"name": "one", **GPU}]}, ["every alt"]),
    "all": ({"exactly": {**GPU, "allocationMode": "All"}}, ["All as 32 devices"]),
    "all, in the form of v1beta1": ({**GPU, "allocationMode": "All"}, ["All as 32 devices"]),
    "admin access to all": (
        {"exactly": {**GPU, "allocationMode": "All", "adminAccess": True}},
        ["All as 32 devices", "counts admin access"],
    ),
}


@pytest.mark.parametrize(("request_", "told"), WORST_CASES.values(), ids=WORST_CASES)
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_of_claims_that_a_quota_counts_at_their_worst_case_that_is_told(
    kind: str, request_: dict[str, Any], told: list[str]
) -> None:
    spec: dict[str, Any] = {"devices": {"requests": [{"name": "gpu", **request_}]}}
    version = "v1beta1" if "deviceClassName" in request_ else "v1"
    claim = {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": "c", "namespace": "team"},
        "spec": spec if kind == "ResourceClaim" else {"spec": spec},
    }
    of_devices = a_quota({"gpu.example.com.deviceclass.resource.k8s.io/devices": 2})

    found, _ = resource_quotas.convert([claim, of_devices]).findings
    (nothing, _) = resource_quotas.convert([claim, a_quota({"pods": 2})]).findings

    assert [text in one.message for text, one in zip(told, found.found, strict=True)] == [True] * len(told)
    assert {one.level for one in found.found} <= {Level.CHECK}
    assert nothing.found == [], "where no devices are limited nothing differs"


@pytest.mark.parametrize(
    ("hard", "elsewhere", "second"),
    [
        ({"gpu.example.com.deviceclass.resource.k8s.io/devices": 2, "requests.cpu": 4}, {}, "Held"),
        ({"gpu.example.com.deviceclass.resource.k8s.io/devices": 3, "requests.cpu": 1, "pods": 2}, {}, "Admitted"),
        ({"gpu.example.com.deviceclass.resource.k8s.io/devices": 3, "requests.cpu": "900m"}, {}, "Held"),
        ({"pods": 1}, {}, "Held"),
        ({"pods": 2}, {}, "Admitted"),
        ({"pods": 2}, {"gpu.example.com.deviceclass.resource.k8s.io/devices": 1, "requests.cpu": 1}, "Admitted"),
        ({"count/resourceclaims.resource.k8s.io": 1}, {}, "Held"),
        ({"count/resourceclaims.resource.k8s.io": 2}, {}, "Admitted"),
    ],
)
async def test_what_is_converted_lets_in_what_the_quota_would_and_holds_the_rest(
    hard: dict[str, Any], elsewhere: dict[str, Any], second: str
) -> None:
    """Of two Jobs of one pod with half a core and a claim, the first for two devices and the second for one.

    elsewhere: what the quota of another namespace limits.
    """
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    jobs = [*a_job("a", "team", 2), *a_job("b", "team", 1)]
    for job in (jobs[1], jobs[3]):
        job["metadata"].pop("labels", None)
        job["spec"]["template"].get("metadata", {}).pop("labels", None)

    other = a_quota(elsewhere) | {"metadata": {"name": "quota", "namespace": "other"}}
    made = resource_quotas.convert([a_quota(hard), *([other] if elsewhere else []), DEVICE_CLASS]).objects
    outcome = await offline.simulate(expand.expand([*objects(JOBS), namespace, *made, *jobs]))

    found = {gang.name.split("/")[-1]: (gang.queue, str(gang.verdict)) for gang in outcome.gangs}
    assert found == {"a": ("team", "Admitted"), "b": ("team", second)}
