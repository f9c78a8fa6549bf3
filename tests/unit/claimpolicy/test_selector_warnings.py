"""What authors of claims are warned about."""

import pytest

from admission.api.kubernetes import claims, devices
from admission.claimpolicy import selector_warnings
from admission.device_cel.selector_findings import SelectorFindings
from admission.podpolicy.known_claims import KnownClaim
from tests.unit.claimpolicy.policies import a_claim, alternatives, exactly

MODEL = "device.attributes['gpu.example.com'].model == 'H100'"
GUARDED = f"'model' in device.attributes['gpu.example.com'] && {MODEL}"
DRIVER = "device.driver == 'gpu.example.com'"


def said(*texts: str, driver: str = "true", device_class: str = "gpu") -> list[str]:
    selectors = [{"cel": {"expression": text}} for text in texts]
    request = exactly(device_class=device_class, selectors=selectors)
    other = alternatives({"name": "a", "deviceClassName": device_class, "selectors": selectors}, name="other")
    claim = KnownClaim(source="ResourceClaim c", spec=claims.decode(a_claim(request, other)).spec)
    spec = {"selectors": [{"cel": {"expression": driver}}]}
    classes = {"gpu": devices.decode_class({"metadata": {"name": "gpu"}, "spec": spec})}
    found = selector_warnings.warnings(claim, classes, SelectorFindings())
    assert [text.replace("request other/a,", "request gpu,") for text in found[len(found) // 2 :]] == list(
        found[: len(found) // 2]
    )
    return list(found[: len(found) // 2])


def test_an_unguarded_attribute_lookup_is_reported_with_the_corrected_selector() -> None:
    assert said(MODEL) == [
        (
            "muster: request gpu, selectors[0], line 1, column 37: a look-up without a guard keeps the pod from being"
            f" scheduled; write: {GUARDED}"
        )
    ]


QUIET = {
    "a guarded one": ([GUARDED], "true", "gpu"),
    "one behind the class's guard": ([MODEL], DRIVER, "gpu"),
    "one behind the selector before it": ([DRIVER, MODEL], "true", "gpu"),
    "one of a class that is not there": ([MODEL], "true", "unknown"),
    "one that does not compile": (["device."], "true", "gpu"),
    "text that is no version everywhere": (
        ["device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].firmware == '1.2.3'"],
        "true",
        "gpu",
    ),
}


@pytest.mark.parametrize(("texts", "driver", "device_class"), QUIET.values(), ids=QUIET)
def test_guarded_and_unreadable_selectors_get_no_warning(texts: list[str], driver: str, device_class: str) -> None:
    assert said(*texts, driver=driver, device_class=device_class) == []


def test_a_selector_test_that_is_always_true_is_reported() -> None:
    (warning,) = said(f"{DRIVER} && has(device.attributes.model)")

    assert warning.endswith("a domain that is not there reads as an empty one; write 'model' in device.attributes")
