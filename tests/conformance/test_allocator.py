"""The allocator against the answers that Kubernetes' own gave. None may differ; what is not simulated says so."""

from collections import Counter
from typing import assert_never

import pytest

from admission.dra import allocating
from admission.dra.allocating import Allocated, NotHere
from admission.dra.asking import Fatal, NotSimulated, Unpriced
from admission.dra.selecting import Selectors
from tests.conformance import corpus
from tests.conformance.corpus import Record

pytestmark = pytest.mark.conformance

STEPS = 100_000

BEHIND = {
    "allocationMode All": {"all"},
    "firstAvailable": {"firstAvailable"},
    "adminAccess": {"adminAccess"},
    "capacity requests": {"capacityRequest"},
    "shared counters (partitionable devices)": {"counters"},
    "allowMultipleAllocations": {"sharedCapacity"},
    "shares of a device": {"sharedCapacity"},
    "a list": {"matchAttribute", "distinctAttribute"},
}
"""What a refusal may be about, and what the record must then say that it touches."""

BEYOND = {"all", "firstAvailable", "adminAccess", "capacityRequest", "counters", "sharedCapacity"}
"""What is not simulated yet: a record that touches none of it must be answered."""

OFF = {"partitionable-devices-disabled-per-device-node-selection"}
"""Records of clusters where gates are off that are on by default, and where that decides."""


@pytest.mark.parametrize("name", ["allocator-upstream", "allocator-random"])
def test_the_allocator_answers_as_kubernetes_does(name: str) -> None:
    counts: Counter[str] = Counter()
    different = {}
    for record in corpus.records(name):
        if record["id"] in OFF:
            counts["of clusters with other gates"] += 1
            continue
        claims = [corpus.claim(obj, "pod") for obj in record["claims"]]
        node = record["node"]["metadata"]["name"]
        found = allocating.allocate(claims, node, corpus.world(record), selectors=Selectors(), steps=STEPS)
        if isinstance(found, NotSimulated):
            counts[f"not simulated: {_topic(found)}"] += 1
            assert BEHIND[_topic(found)] & set(record["touches"]), (record["id"], found)
            assert _is_beyond(record), (record["id"], found)
        else:
            counts[f"agrees: {corpus.answer(record)['outcome']}"] += 1
            if flaw := _difference(found, corpus.answer(record)):
                different[record["id"]] = flaw
    if not counts:
        pytest.skip(f"{name} does not travel with the repository")
    print(f"\n{name}: " + ", ".join(f"{what} {count}" for what, count in sorted(counts.items())))

    assert different == {}


def _topic(found: NotSimulated) -> str:
    return "a list" if "list attribute" in found.what else found.what


def _is_beyond(record: Record) -> bool:
    return bool(BEYOND & set(record["touches"])) or record["allocator"] == "experimental" or "lists" in record["id"]


def _difference(found: Allocated | NotHere | Fatal | Unpriced, expected: Record) -> str | None:
    match found:
        case Allocated():
            mine = [[(given.request, *given.device) for given in claim] for claim in found.claims]
            agrees = expected["outcome"] == "allocated" and mine == _results(expected)
        case NotHere():
            agrees = expected["outcome"] == "none" or (expected["outcome"] == "error" and not expected["fatal"])
        case Fatal() | Unpriced():
            agrees = expected["outcome"] == "error" and expected["fatal"]
        case _:
            assert_never(found)
    return None if agrees else f"{found}, not {expected['outcome']} {expected['error']} {expected.get('results')}"


def _results(expected: Record) -> list[list[tuple[str, str, str, str]]]:
    return [
        [
            (one["request"], one["driver"], one["pool"], one["device"])
            for one in claim.get("devices", {}).get("results", [])
        ]
        for claim in expected.get("results", ())
    ]
