"""Records of allocations: what the allocator answers to one, and where that differs from what Kubernetes' code gave.

What has to agree: the outcome, and of an allocation the devices in their order, node selector, configuration,
tolerations and consumed capacity; not the wording of errors, nor share ids.
"""

from collections.abc import Sequence
from typing import Any, assert_never

from admission.api.kubernetes.claims import Claim
from admission.api.values import quantities
from admission.dra.allocator import node_allocator
from admission.dra.allocator.node_allocator import Allocated, NotHere
from admission.dra.allocator.results import StepsEndedError
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.requests import Fatal, Unpriced
from admission.errors import MalformedObjectError
from tests.conformance import corpus
from tests.conformance.corpus import Record

STEPS = 50_000


UNDECIDED = {"outcome": "search limit"}
"""The answer where the search has ended without one. No recorded question may have it."""


def compare(record: Record, release: Release) -> str | None:
    """Return how the answer differs from the recorded one; None where they agree."""
    return compared(record, answer(record, release), release)


def compared(record: Record, got: dict[str, Any], release: Release) -> str | None:
    """Return how an answer differs from the recorded one; None where they agree."""
    wanted = expected(record, release)
    return None if got == wanted else f"expected {wanted}\n       got {got}"


def difference(record: Record, profile: str) -> str | None:
    """The same for a profile by its name."""
    return compare(record, Release(profile))


def answer(record: Record, release: Release, *, certain: bool = False) -> dict[str, Any]:
    """Return the allocator's answer in the record's words. certain: `none` for devices that are no promise."""
    try:
        claims: list[Claim] = [corpus.claim(obj, "pod") for obj in record["claims"]]
        cluster = corpus.cluster(record, release)
    except MalformedObjectError as error:
        return {"outcome": "malformed", "error": str(error)}
    node = next(iter(cluster.nodes))
    try:
        found = node_allocator.allocate(
            claims, node, cluster, selectors=Selectors(cluster.profile.cel), steps=STEPS, certain=certain
        )
    except StepsEndedError:
        return UNDECIDED
    match found:
        case Allocated():
            ids = ["<uuid>"] * 99
            return as_allocated([one.json(ids) for one in found.claims])
        case NotHere(invalid=""):
            return {"outcome": "none"}
        case NotHere():
            return {"outcome": "error", "fatal": False}
        case Fatal() | Unpriced():
            return {"outcome": "error", "fatal": True}
        case _:
            assert_never(found)


def as_allocated(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the answer that these allocations are."""
    return {"outcome": "allocated", "results": [_plain(one) for one in results]}


def expected(record: Record, release: Release) -> dict[str, Any]:
    """Return the recorded answer without what need not agree."""
    found = corpus.answer(record, release)
    if found["outcome"] == "allocated":
        return {"outcome": "allocated", "results": [_plain(one) for one in found.get("results", ())]}
    if found["outcome"] == "error":
        return {"outcome": "error", "fatal": found["fatal"]}
    return {"outcome": found["outcome"]}


def _plain(allocation: dict[str, Any]) -> dict[str, Any]:
    """Return an allocation with quantities as numbers."""
    devices = dict(allocation.get("devices", {}))
    devices["results"] = [
        {
            **one,
            **(
                {"consumedCapacity": {name: quantities.parse(text) for name, text in one["consumedCapacity"].items()}}
                if "consumedCapacity" in one
                else {}
            ),
        }
        for one in devices.get("results", ())
    ]
    devices.setdefault("config", [])
    return {**allocation, "devices": devices}
