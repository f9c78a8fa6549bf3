"""`spec.provisioning` of a Queue: the class and parameters of ProvisioningRequests go with that mode alone."""

from typing import Any

import pytest

from admission.api.capacity.node_provision import ProvisioningMode
from admission.api.muster import queues
from admission.errors import MalformedObjectError

ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
REQUEST = {"mode": "ProvisioningRequest", "class": ATOMIC}

REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "a request without a class": ({"mode": "ProvisioningRequest"}, "class", "is required"),
    "a class of requests that nobody makes": ({"mode": "Pods", "class": ATOMIC}, "class", "leave it out, or choose"),
    "parameters of requests that nobody makes": ({"parameters": {"a": "b"}}, "parameters", "leave it out, or choose"),
    "a class that is no name": ({**REQUEST, "class": "A_b"}, "class", "is not a DNS subdomain"),
    "more parameters than a request may have": (
        {**REQUEST, "parameters": {f"p{number}": "" for number in range(101)}},
        "parameters",
        "has 101 entries; a request may have 100",
    ),
    "a parameter that is too long": (
        {**REQUEST, "parameters": {"x": "y" * 256}},
        "parameters.x",
        "has 256 characters; it may have 255",
    ),
}


def decode(provisioning: dict[str, Any]) -> queues.Queue:
    return queues.decode({"metadata": {"name": "q"}, "spec": {"provisioning": provisioning}})


@pytest.mark.parametrize(("provisioning", "field", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_is_named_with_its_field_and_what_helps(
    provisioning: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(MalformedObjectError) as caught:
        decode(provisioning)

    (problem,) = caught.value.problems
    assert problem.field == f"spec.provisioning.{field}"
    assert words in problem.message


def test_class_and_parameters_are_read() -> None:
    read = decode({**REQUEST, "parameters": {"ValidUntilSeconds": "600"}}).provisioning

    assert (read.mode, read.provisioning_class) == (ProvisioningMode.REQUEST, ATOMIC)
    assert read.parameters == {"ValidUntilSeconds": "600"}
