"""Decoders find every flaw with its field, whatever shape the JSON has, and never raise anything else."""

from collections.abc import Callable
from typing import Any

import pytest

from admission.api.kubernetes import admission_review, claims, device_taint_rules, devices, jobs, nodes, pods
from admission.api.muster import gangs, meters, queues
from admission.errors import MalformedObjectError
from tests.builders import NOON

DECODERS: dict[str, Callable[[Any], object]] = {
    "Pod": pods.decode,
    "Node": nodes.decode,
    "Namespace": nodes.decode_namespace,
    "ResourceClaim": claims.decode,
    "ResourceClaimTemplate": claims.decode_template,
    "ResourceSlice": devices.decode_slice,
    "DeviceClass": devices.decode_class,
    "DeviceTaintRule": device_taint_rules.decode,
    "Job": jobs.decode,
    "Queue": queues.decode,
    "Meter": meters.decode,
    "Gang": gangs.decode,
    "AdmissionReview": admission_review.decode,
}

WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "allocatable is no mapping": ("Node", {"status": {"allocatable": 3}}, "status.allocatable"),
    "an amount is no quantity": ("Node", {"status": {"allocatable": {"cpu": "many"}}}, "status.allocatable.cpu"),
    "requests is a list": (
        "Pod",
        {"spec": {"containers": [{"resources": {"requests": [{}]}}]}},
        "spec.containers[0].resources.requests",
    ),
    "capacity requests are text": (
        "ResourceClaim",
        {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"capacity": {"requests": "x"}}}]}}},
        "spec.devices.requests[0].exactly.capacity.requests",
    ),
    "a capacity without a value": (
        "ResourceSlice",
        {"spec": {"devices": [{"name": "d", "capacity": {"memory": {}}}]}},
        "spec.devices[0].capacity[memory].value",
    ),
    "a counter without a value": (
        "ResourceSlice",
        {"spec": {"sharedCounters": [{"name": "s", "counters": {"c": {}}}]}},
        "spec.sharedCounters[0].counters[c].value",
    ),
    "a consumed counter that is null": (
        "ResourceSlice",
        {"spec": {"devices": [{"name": "d", "consumesCounters": [{"counterSet": "s", "counters": {"c": None}}]}]}},
        "spec.devices[0].consumesCounters[0].counters[c].value",
    ),
    "a request of no alternatives": (
        "ResourceClaim",
        {"spec": {"devices": {"requests": [{"name": "r", "firstAvailable": []}]}}},
        "spec.devices.requests[0]",
    ),
    "config holds text": ("DeviceClass", {"spec": {"config": ["x"]}}, "spec.config"),
    "a quota below zero": ("Queue", {"spec": {"quotas": [{"meter": "m", "nominal": "-1"}]}}, "spec.quotas[0].nominal"),
    "a quota that is no whole number": (
        "Queue",
        {"spec": {"quotas": [{"meter": "m", "nominal": "500m"}]}},
        "spec.quotas[0].nominal",
    ),
    "a meter named twice": (
        "Queue",
        {"spec": {"quotas": [{"meter": "m", "nominal": 1}, {"meter": "m", "nominal": 2}]}},
        "spec.quotas[1].meter",
    ),
    "a duration that is none": ("Queue", {"spec": {"startTimeout": "soon"}}, "spec.startTimeout"),
    "a resource that is no extended one": (
        "Meter",
        {"spec": {"extendedResources": ["nvidia.com/gpu", "memory"]}},
        "spec.extendedResources[1]",
    ),
    "a resource that Kubernetes keeps for itself": (
        "Meter",
        {"spec": {"extendedResources": ["deviceclass.resource.kubernetes.io/gpu"]}},
        "spec.extendedResources[0]",
    ),
    "a rate of what nobody requests of nodes": (
        "Meter",
        {"spec": {"resources": [{"name": "storage"}]}},
        "spec.resources[0].name",
    ),
    **{
        f"a rate of huge pages of no size, {name}": (
            "Meter",
            {"spec": {"resources": [{"name": name}]}},
            "spec.resources[0].name",
        )
        for name in ("hugepages-", "hugepages-0", "hugepages-2mi")
    },
    "a rate without a resource": ("Meter", {"spec": {"resources": [{"factor": 2}]}}, "spec.resources[0].name"),
    "two rates of one resource": (
        "Meter",
        {"spec": {"resources": [{"name": "cpu"}, {"name": "cpu", "factor": 2}]}},
        "spec.resources[1].name",
    ),
    "a rate of a resource that is listed": (
        "Meter",
        {"spec": {"extendedResources": ["x.io/gpu"], "resources": [{"name": "x.io/gpu"}]}},
        "spec.resources[0].name",
    ),
    "a rate of nothing": ("Meter", {"spec": {"resources": [{"name": "cpu", "factor": 0}]}}, "spec.resources[0].factor"),
    "too high a rate": (
        "Meter",
        {"spec": {"resources": [{"name": "cpu", "factor": 10**7}]}},
        "spec.resources[0].factor",
    ),
    "a rate for no amount": ("Meter", {"spec": {"resources": [{"name": "cpu", "per": "0"}]}}, "spec.resources[0].per"),
    "a rate for too large an amount": (
        "Meter",
        {"spec": {"resources": [{"name": "memory", "per": "2P"}]}},
        "spec.resources[0].per",
    ),
    "a rate for a part of a thousandth of a core": (
        "Meter",
        {"spec": {"resources": [{"name": "cpu", "per": "1u"}]}},
        "spec.resources[0].per",
    ),
    "a rate for a part of a byte": (
        "Meter",
        {"spec": {"resources": [{"name": "memory", "per": "500m"}]}},
        "spec.resources[0].per",
    ),
    "more than any node can have": (
        "Pod",
        {"spec": {"containers": [{"resources": {"requests": {"cpu": "1e19"}}}]}},
        "spec.containers",
    ),
    "a source that measures nothing": ("Meter", {"spec": {"sources": [{"deviceClasses": ["c"]}]}}, "spec.sources[0]"),
    "a gang without a queue": ("Gang", {"spec": {"size": 2}}, "spec.queue"),
    "a claim of a pod that refers to nothing": (
        "Pod",
        {"spec": {"resourceClaims": [{"name": "x"}]}},
        "spec.resourceClaims[0]",
    ),
    "a review of another version": ("AdmissionReview", {"kind": "AdmissionReview", "apiVersion": "v1"}, "."),
}


@pytest.mark.parametrize(("kind", "obj", "field"), WRONG.values(), ids=WRONG)
def test_a_decoding_problem_names_its_field(kind: str, obj: dict[str, Any], field: str) -> None:
    with pytest.raises(MalformedObjectError) as caught:
        DECODERS[kind](obj)

    assert field in [problem.field for problem in caught.value.problems]


def test_all_decoding_problems_of_an_object_are_reported_at_once() -> None:
    quotas = [{"meter": "m", "nominal": "x"}, {"nominal": "1"}]

    with pytest.raises(MalformedObjectError) as caught:
        queues.decode({"metadata": {"name": "q"}, "spec": {"quotas": quotas, "startTimeout": "x"}})

    fields = [problem.field for problem in caught.value.problems]
    assert {"spec.quotas[0].nominal", "spec.quotas[1].meter", "spec.startTimeout"} <= set(fields)


def test_no_alternatives_and_an_empty_mode_are_as_if_left_out() -> None:
    request = {"name": "r", "firstAvailable": [], "exactly": {"deviceClassName": "gpu", "allocationMode": ""}}

    found = claims.decode({"spec": {"devices": {"requests": [request]}}}).spec.requests[0]

    assert not found.first_available
    assert [(asked.device_class, asked.mode, asked.count) for asked in found.alternatives] == [("gpu", "ExactCount", 1)]


def test_claims_that_say_the_same_share_one_spec() -> None:
    def decoded(**exactly: Any) -> claims.Claim:
        request = {"name": "r", "exactly": {"deviceClassName": "gpu", **exactly}}
        return claims.decode({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}})

    assert decoded(count=2).spec is decoded(count=2).spec
    assert decoded(count=2).spec != decoded(count=3).spec
    assert decoded(adminAccess=True).spec != decoded(adminAccess=False).spec
    for _ in range(2):
        with pytest.raises(MalformedObjectError) as caught:
            decoded(count="two")
        assert [problem.field for problem in caught.value.problems] == ["spec.devices.requests[0].exactly.count"]


def test_no_long_spec_is_kept_when_its_claim_is_gone() -> None:
    """A spec may be 1.5 MB long, and anyone may create and delete claims that all say something else."""
    text = "x" * 10_000
    selectors = [{"cel": {"expression": text}}]
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": selectors}}
    obj = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    kept = claims._spec_of.cache_info().currsize

    assert claims.decode(obj).spec.requests[0].alternatives[0].selectors == (text,)
    assert claims._spec_of.cache_info().currsize == kept


def test_a_spec_with_values_that_are_no_json_is_decoded_all_the_same() -> None:
    """A manifest in YAML may have dates."""
    parameters = {"opaque": {"driver": "d", "parameters": {"since": NOON}}}
    found = claims.decode({"spec": {"devices": {"config": [parameters]}}})

    assert found.spec.config == (parameters,)
