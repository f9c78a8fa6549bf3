"""What the API server stores, our decoders read: both were written from the same page and must not drift apart."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from admission.api.capacity import node_shapes
from admission.api.muster import claim_policies, gangs, meters, queues
from admission.errors import MalformedObjectError
from tests.unit.api import crds

DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "Queue": queues.decode,
    "Meter": meters.decode,
    "Gang": gangs.decode,
    "ClaimPolicy": claim_policies.decode,
    "NodeShape": node_shapes.decode,
}
EXAMPLES = {name: obj for name, obj in crds.examples().items() if obj["kind"] in DECODERS}

NODE_SHAPE = {"maxCount": 4, "matchLabels": {"type": "gpu-8"}, "allocatable": {"cpu": 96}}

BARE: Mapping[str, Any] = {
    "Queue": {},
    "Meter": {"sources": [{"deviceClasses": ["gpu.example.com"], "count": {}}]},
    "Gang": {"queue": "research-vision", "size": 4},
    "ClaimPolicy": {"rules": [{"cel": "true", "message": "never said"}]},
    "NodeShape": NODE_SHAPE,
}


@pytest.mark.parametrize("obj", EXAMPLES.values(), ids=EXAMPLES)
def test_every_example_is_read(obj: Any) -> None:
    assert DECODERS[obj["kind"]](obj).meta.name == obj["metadata"]["name"]


@pytest.mark.parametrize("obj", EXAMPLES.values(), ids=EXAMPLES)
def test_the_defaults_of_the_schema_change_nothing_for_an_example(obj: Any) -> None:
    decode = DECODERS[obj["kind"]]

    assert decode(crds.defaulted(obj)) == decode(obj)


@pytest.mark.parametrize("kind", DECODERS)
def test_the_defaults_of_the_schema_are_those_of_the_decoder(kind: str) -> None:
    bare = {"kind": kind, "metadata": {"name": "bare"}, "spec": BARE[kind]}
    decode = DECODERS[kind]

    assert decode(crds.defaulted(bare)) == decode(bare)


def test_a_decoder_takes_amounts_as_text_and_as_numbers() -> None:
    as_text, as_number = (
        {"metadata": {"name": "q"}, "spec": {"quotas": [{"meter": "gpus", "nominal": nominal}]}} for nominal in ("8", 8)
    )

    assert queues.decode(as_text) == queues.decode(as_number)


SOURCES: Mapping[str, Any] = {
    "claims": {"claims": {}},
    "count": {"count": {}},
    "capacity": {"capacity": {"name": "gpu.example.com/memory"}},
    "counter": {"counter": {"counterSet": "gpu-0", "name": "memory"}},
    "expression": {"expression": {"cel": "device.attributes['gpu.example.com'].model == 'H100' ? 4 : 1"}},
}


@pytest.mark.parametrize("measure", list(meters.Measure))
def test_every_way_to_count_is_in_the_schema_and_is_read(measure: str) -> None:
    source = {"deviceClasses": ["gpu.example.com"], **SOURCES[measure]}
    meter = {"kind": "Meter", "metadata": {"name": "m"}, "spec": {"sources": [source]}}

    assert crds.problems(meter) == []
    assert meters.decode(meter).sources[0].measure == measure


RATES: Mapping[str, Any] = {
    "what every node has": {"name": "ephemeral-storage"},
    "thousandths": {"name": "cpu", "per": "250m"},
    "bytes as a number": {"name": "memory", "per": 1024, "factor": 3},
    "huge pages": {"name": "hugepages-1Gi", "per": "1Gi", "factor": 1_000_000},
    "the largest amount": {"name": "memory", "per": "1P"},
    "a vendor's": {"name": "nvidia.com/gpu", "factor": 4},
}


@pytest.mark.parametrize("rate", RATES.values(), ids=RATES)
def test_every_rate_of_a_resource_is_in_the_schema_and_is_read(rate: Any) -> None:
    meter = {"kind": "Meter", "metadata": {"name": "m"}, "spec": {"resources": [rate]}}
    defaulted = crds.defaulted(meter)

    assert crds.problems(meter) == []
    assert meters.decode(defaulted) == meters.decode(meter)
    (read,) = meters.decode(meter).resources
    assert (read.name, read.factor) == (rate["name"], rate.get("factor", 1))


REFUSED: Mapping[str, tuple[str, Any, str]] = {
    "a quota without an amount": ("Queue", {"quotas": [{"meter": "gpus"}]}, "quotas[0].nominal"),
    "a priority class without a value": (
        "Queue",
        {"priorityClasses": [{"name": "urgent"}]},
        "priorityClasses[0].value",
    ),
    "a priority of more than 32 bits": (
        "Queue",
        {"priorityClasses": [{"name": "urgent", "value": 2**31}]},
        "priorityClasses[0].value",
    ),
    "a threshold of more than 32 bits": (
        "Queue",
        {"preemption": {"borrowWithinCohort": {"maxPriorityThreshold": -(2**31) - 1}}},
        "preemption.borrowWithinCohort.maxPriorityThreshold",
    ),
    "more attempts than 32 bits": ("Queue", {"requeue": {"limit": 2**31}}, "requeue.limit"),
    "nodes that nobody can be asked for": ("Queue", {"provisioning": {"mode": "Buy"}}, "provisioning.mode"),
    "a class that is no name": (
        *("Queue", {"provisioning": {"mode": "ProvisioningRequest", "class": "A_b"}}, "provisioning.class"),
    ),
    "a parameter of requests that is too long": (
        "Queue",
        {"provisioning": {"mode": "ProvisioningRequest", "class": "a.example.com", "parameters": {"x": "y" * 256}}},
        "provisioning.parameters.x",
    ),
    "a price below 0": ("NodeShape", {**NODE_SHAPE, "pricePerHour": -1}, "pricePerHour"),
    "a price as a floating-point number": ("NodeShape", {**NODE_SHAPE, "pricePerHour": 98.32}, "pricePerHour"),
    "a price that is no number": ("NodeShape", {**NODE_SHAPE, "pricePerHour": "98 EUR"}, "pricePerHour"),
    "a shape of any number of nodes": (
        "NodeShape",
        {name: NODE_SHAPE[name] for name in ("matchLabels", "allocatable")},
        "maxCount",
    ),
    "a shape of fewer nodes than none": ("NodeShape", {**NODE_SHAPE, "maxCount": -1}, "maxCount"),
    "a shape that every node is of": ("NodeShape", {**NODE_SHAPE, "matchLabels": {}}, "matchLabels"),
    "a label that no node has": ("NodeShape", {**NODE_SHAPE, "labels": {"zone": "a b"}}, "labels.zone"),
    "a node without resources": ("NodeShape", {**NODE_SHAPE, "allocatable": {}}, "allocatable"),
}


@pytest.mark.parametrize(("kind", "spec", "field"), REFUSED.values(), ids=REFUSED)
def test_what_the_api_server_refuses_is_refused_by_the_decoder(kind: str, spec: Any, field: str) -> None:
    obj = {"kind": kind, "metadata": {"name": "bad"}, "spec": spec}

    assert crds.problems(obj) != []
    with pytest.raises(MalformedObjectError) as caught:
        DECODERS[kind](obj)
    assert [problem.field for problem in caught.value.problems] == [f"spec.{field}"]
