"""Device selectors, held against 2,120 answers of Kubernetes' own compiler (cel-go 0.26 in 1.36.3, 0.29 in 1.37.1).

What has to agree: whether a text compiles, and its value or that it fails; not the wording, nor the cost.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from admission.api import devices
from admission.dra.cel import environments, programs, values
from admission.dra.cel.library import quantities

pytestmark = pytest.mark.conformance

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus" / "cel.jsonl"
COPY = Path(__file__).parent / "data" / "cel.jsonl.gz"

REFUSED = {
    **dict.fromkeys(
        (
            "google.protobuf.Int64Value{",
            "google.protobuf.Struct{",
            "google.protobuf.Duration{",
            "google.protobuf.StringValue{",
        ),
        "messages of protocol buffers are not built",
    ),
    **dict.fromkeys(
        ('getHours("America/New_York")', 'getHours("No/Such")', 'getHours("Nowhere")'),
        "time zones by name need the system's files",
    ),
}
"""Texts that Kubernetes takes and Muster refuses by name, by a part of them, and why. Strict: none may agree."""

COST_LIMIT = "actual cost limit exceeded"


def records() -> list[dict[str, Any]]:
    if CORPUS.exists():
        return [json.loads(line) for line in CORPUS.read_text().strip().split("\n")]
    return [json.loads(line) for line in gzip.decompress(COPY.read_bytes()).decode().strip().split("\n")]


def answers() -> Iterator[Any]:
    """Yield one case a record for 1.36, and a further one where 1.37 answers otherwise."""
    for record in records():
        yield pytest.param(record, record["expect"], 36, id=record["id"])
        if "expect137" in record:
            yield pytest.param(record, record["expect137"], 37, id=f"{record['id']}-1.37")


@pytest.mark.parametrize(("record", "expected", "release"), list(answers()))
def test_answers_as_kubernetes_does(record: dict[str, Any], expected: dict[str, Any], release: int) -> None:
    reason = next((why for part, why in REFUSED.items() if part in record["expression"]), None)

    got = answer(record, release)

    if reason is not None:
        assert got == ("compile error", None), f"no longer refused: {reason}"
    elif COST_LIMIT in (expected["runtimeError"] or ""):
        # Muster counts steps, not yet cost units: it may answer where Kubernetes stops, but must come to an end.
        assert got[0] in ("value", "error")
    else:
        assert got == wanted(expected)


def test_no_release_differs_where_the_record_says_that_none_does() -> None:
    same = [record for record in records() if "expect137" not in record and "cost" not in record["touches"]]
    differing = [record["id"] for record in same[::7] if answer(record, 36) != answer(record, 37)]

    assert differing == []


def wanted(expected: dict[str, Any]) -> tuple[str, bool | None]:
    if expected["compile"] == "error":
        return "compile error", None
    if expected["runtimeError"] is not None:
        return "error", None
    return "value", expected["result"]


def answer(record: dict[str, Any], release: int) -> tuple[str, bool | int | None]:
    gates = record["features"]
    profile = environments.Profile(
        release=release,
        stored=record["mode"] == "stored",
        lists=gates["listTypeAttributes"],
        consumable=gates["consumableCapacity"],
    )
    program = programs.compile_device(record["expression"], profile=profile)
    if isinstance(program, programs.CompileError):
        return "compile error", None
    try:
        return "value", program.evaluate(device(record, lists=profile.lists or release >= 37))
    except programs.EvaluationError:
        return "error", None


def device(record: dict[str, Any], *, lists: bool) -> programs.DeviceValue | programs.UnreadableDevice:
    """Build the record's device. Capacities keep their text, on which `isInteger` depends."""
    data = record["device"]
    value = programs.device_value(
        data["driver"],
        devices.Device(
            name="device",
            attributes={name: attribute(given) for name, given in data["attributes"].items()},
            allows_multiple=bool(data.get("allowMultipleAllocations")),
        ),
        lists=lists,
    )
    if isinstance(value, programs.DeviceValue):
        for name, amount in data["capacity"].items():
            domain, _, plain = name.rpartition("/")
            inner = value.device["capacity"].setdefault(domain or data["driver"], values.Names())
            inner[plain] = quantities.parse(amount["value"])
    return value


def attribute(given: dict[str, Any]) -> devices.AttributeValue | None:
    """Take the value that Kubernetes takes when several are set."""
    for name in ("int", "bool", "string"):
        if name in given:
            return given[name]  # type: ignore[no-any-return]
    if "version" in given:
        return devices.Version(given["version"])
    if "versions" in given:
        return tuple(map(devices.Version, given["versions"]))
    return next((tuple(elements) for elements in given.values()), None)
