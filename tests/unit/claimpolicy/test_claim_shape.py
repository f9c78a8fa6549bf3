"""Claims that the API server would refuse for their shape or size."""

from typing import Any

import pytest

from admission.claimpolicy import claim_shape
from admission.errors import MalformedObjectError
from tests.unit.claimpolicy.policies import a_claim, a_template, alternatives, exactly

SELECTORS = [{"cel": {"expression": "true"}}]


def refused(obj: Any, *, template: bool = False) -> list[str]:
    with pytest.raises(MalformedObjectError) as raised:
        claim_shape.check(obj, "ResourceClaim", "c", template=template)
    assert str(raised.value).startswith("ResourceClaim c: ")
    return list(map(str, raised.value.problems))


def with_spec(**devices: Any) -> Any:
    return {"metadata": {"name": "c"}, "spec": {"devices": devices}}


def test_the_largest_claim_of_the_api_is_taken() -> None:
    options = [
        {"name": f"a{at}", "deviceClassName": "gpu", "selectors": SELECTORS * 32, "tolerations": [{}] * 16}
        for at in range(8)
    ]
    requests = [alternatives(*options, name=f"{at}".rjust(253, "r")) for at in range(32)]

    assert claim_shape.check(a_claim(*requests), "ResourceClaim", "c", template=False) == 256
    assert claim_shape.check(a_template(*requests), "ResourceClaimTemplate", "c", template=True) == 256


def test_requests_count_once_each() -> None:
    assert claim_shape.check(a_claim(exactly(), exactly("b")), "ResourceClaim", "c", template=False) == 2
    assert claim_shape.check({}, "ResourceClaim", "c", template=False) == 0


REFUSED: dict[str, tuple[Any, str]] = {
    "no metadata": ({"metadata": "x"}, "metadata: is a string, an object is expected"),
    "no labels": ({"metadata": {"labels": ["a"]}}, "metadata.labels: is a list, an object is expected"),
    "no annotations": ({"metadata": {"annotations": 1}}, "metadata.annotations: is an integer, an object is expected"),
    "no spec": ({"spec": []}, "spec: is a list, an object is expected"),
    "no devices": ({"spec": {"devices": "x"}}, "spec.devices: is a string, an object is expected"),
    "no list of requests": (with_spec(requests={}), "spec.devices.requests: is an object, a list is expected"),
    "no request": (with_spec(requests=[None]), "spec.devices.requests[0]: is null, an object is expected"),
    "33 requests": (
        with_spec(requests=[exactly()] * 33),
        "spec.devices.requests: has 33 entries, and at most 32 may be",
    ),
    "9 alternatives": (
        with_spec(requests=[alternatives(*[{}] * 9)]),
        "spec.devices.requests[0].firstAvailable: has 9 entries, and at most 8 may be",
    ),
    "33 selectors": (
        with_spec(requests=[exactly(selectors=SELECTORS * 33)]),
        "spec.devices.requests[0].exactly.selectors: has 33 entries, and at most 32 may be",
    ),
    "33 selectors of v1beta1": (
        with_spec(requests=[{"name": "gpu", "selectors": SELECTORS * 33}]),
        "spec.devices.requests[0].selectors: has 33 entries, and at most 32 may be",
    ),
    "33 constraints": (
        with_spec(constraints=[{}] * 33),
        "spec.devices.constraints: has 33 entries, and at most 32 may be",
    ),
    "a long name": (
        with_spec(requests=[exactly(device_class="x" * 254)]),
        "spec.devices.requests[0].exactly.deviceClassName: has 254 characters, and at most 253 may be",
    ),
}


@pytest.mark.parametrize(("obj", "problem"), REFUSED.values(), ids=REFUSED)
def test_what_the_api_server_would_refuse_is_named_with_its_field(obj: Any, problem: str) -> None:
    assert refused(obj) == [problem]


def test_fields_of_a_template_are_named_by_their_place_in_it() -> None:
    assert refused({"spec": {"spec": {"devices": {"requests": 1}}}}, template=True) == [
        "spec.spec.devices.requests: is an integer, a list is expected"
    ]
    assert refused({"metadata": {"labels": 1}, "spec": {"metadata": {"labels": 1}}}, template=True) == [
        "metadata.labels: is an integer, an object is expected",
        "spec.metadata.labels: is an integer, an object is expected",
    ]
