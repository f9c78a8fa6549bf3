"""Manifests of earlier DRA APIs: what is written for v1, what has to be checked, what is left to mend."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.conversion import findings, manifests
from admission.conversion.findings import Finding, Level

HERE = Path(__file__).parent
CONVERTED: dict[str, Any] = yaml.safe_load((HERE / "converted.yaml").read_text())
LEFT: dict[str, Any] = yaml.safe_load((HERE / "left.yaml").read_text())


def convert(*objects: Any) -> tuple[list[Any], list[Finding]]:
    """Return the objects as they are written today, those that were added last, and what was found."""
    written = copy.deepcopy(list(objects))
    found = manifests.convert(written)
    added = [one for conversion in found for one in conversion.added]
    return [*written, *added], [one for conversion in found for one in conversion.findings]


def a_class(name: str, driver: str) -> Any:
    spec = {"selectors": [{"cel": {"expression": driver}}]}
    return {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": spec,
    }


def a_claim(expression: str, *, of: str = "gpu", version: str = "v1beta1", within: str = "") -> Any:
    """Return a claim with a selector. within: the field of its request that has it."""
    selected = {"deviceClassName": of, "selectors": [{"cel": {"expression": expression}}]}
    parts: dict[str, Any] = {
        "": selected,
        "exactly": {"exactly": selected},
        "firstAvailable": {"firstAvailable": [{"name": "s", **selected}]},
    }
    spec = {"devices": {"requests": [{"name": "r", **parts[within]}]}}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "a"},
        "spec": spec,
    }


@pytest.mark.parametrize("case", CONVERTED.values(), ids=CONVERTED)
def test_what_v1_can_say_is_converted(case: Any) -> None:
    written, found = convert(*case["before"])

    assert written == case["after"]
    assert [one for one in found if one.level is Level.LEFT] == []


@pytest.mark.parametrize("case", CONVERTED.values(), ids=CONVERTED)
def test_what_is_converted_stays_so(case: Any) -> None:
    assert convert(*case["after"]) == (case["after"], [])


@pytest.mark.parametrize("case", LEFT.values(), ids=LEFT)
def test_what_cannot_be_converted_is_told_each_time(case: Any) -> None:
    written, first = convert(case["object"])

    left = [one for one in first if one.level is Level.LEFT]
    assert [one.field for one in left] == [case["field"]]
    assert case["words"] in left[0].message
    assert [one.level for one in convert(*written)[1]] == [Level.LEFT]


def test_domains_come_from_the_class_of_the_request_then_from_the_only_driver() -> None:
    gpu, nic = a_class("gpu", 'device.driver == "gpu.acme.io"'), a_class("nic", "'n.io' == device.driver")
    selector = 'device.attributes["m"].bool'
    elsewhere = a_claim(selector, of="a-class-of-the-cluster")

    *_, of_class = convert(gpu, nic, a_claim(selector))[0]
    *_, of_only = convert(gpu, elsewhere)[0]
    (*_, of_none), found = convert(gpu, nic, elsewhere)

    requests = [one["spec"]["devices"]["requests"][0]["exactly"] for one in (of_class, of_only, of_none)]
    texts = [request["selectors"][0]["cel"]["expression"] for request in requests]
    assert texts == ['device.attributes["gpu.acme.io"].m', 'device.attributes["gpu.acme.io"].m', selector]
    assert findings.worst(found) is Level.LEFT


def test_cel_of_an_old_manifest_has_to_compile() -> None:
    """That of v1 is the business of `muster lint`."""
    wrong = "device.count > 1"

    flat = convert(a_claim(wrong))[1]
    alternative = convert(a_claim(wrong, within="firstAvailable"))[1]

    left = [one for one in (*flat, *alternative) if one.level is Level.LEFT]
    assert [one.field for one in left] == [
        "spec.devices.requests[0].selectors[0].cel.expression",
        "spec.devices.requests[0].firstAvailable[0].selectors[0].cel.expression",
    ]
    assert all(one.message.startswith("is no CEL that Kubernetes takes") for one in left)
    assert convert(a_claim(wrong, version="v1", within="exactly"))[1] == []


def test_findings_of_a_slice_with_many_devices_are_bounded() -> None:
    devices = [{"name": f"d{at}", "basic": {"attributes": {"m": "80GB"}}} for at in range(3000)]
    spec = {"driver": "gpu.acme.io", "nodeName": "one", "pool": {"name": "one"}, "devices": devices}
    slice_ = {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceSlice", "metadata": {"name": "a"}, "spec": spec}

    (written,), found = convert(slice_)

    assert written["spec"]["devices"][-1] == {"name": "d2999", "capacity": {"m": {"value": "80G"}}}
    assert findings.MOST <= len(found) <= 2 * findings.MOST
