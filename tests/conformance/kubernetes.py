"""The allocator held against Kubernetes' own, asked now instead of recorded: on random worlds, as many as wanted.

    python -m tests.conformance.kubernetes 0 20000            # the worlds of these seeds, on every release
    python -m tests.conformance.kubernetes 0 20000 --gates    # with feature gates on and off
    python -m tests.conformance.kubernetes 0 20000 --release 1.35    # with the gates of 1.35 as it comes

prints each seed whose answers differ, and closes with `N agree, M differ`. Needs Go once, to build Kubernetes; what was
built elsewhere `--program` names.

1.35 takes pools and slices in random order. Where we promise devices it has to give these, in whatever order; else it
has to find some where we do, and none where we do not. Errors may depend on what it meets first.
"""

import argparse
import copy
import json
import sys
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from admission.dra import compatibility
from admission.dra.compatibility import Release
from tests.conformance import allocators, corpus
from tests.controlplane.allocators import Oracle
from tests.property import clusters

Record = dict[str, Any]

OFF_IN_1_35 = (
    *("ConsumableCapacity", "DeviceBindingAndStatus", "DeviceTaints", "PartitionableDevices"),
    "ListTypeAttributes",
)
"""Features of which a 1.35 as it comes has none."""

NO_ANSWER = ("timeout", "panic")

HARMLESS = {
    "1.5Gi": "1536Mi",
    **dict.fromkeys(("9223372036854775807", "9223372036854775800", "12345678901234567890", "8Ei", "1e19"), "1E"),
}
"""Amounts of our worlds with which 1.36 errs, and others in their place.

What apimachinery keeps as a decimal, 1.36 adds to in place, in the slice or the claim itself: its answer depends on how
often it looked at a device, and a request of 1.5Gi may consume 3.5Gi. What is above 2^63-1 it wraps around: a request
of 1e19 fits. Muster does neither; nor does 1.37.
"""


def difference(record: Record, release: Release, ask: Callable[[Record], Record]) -> str | None:
    """Return how our answer differs from the one of this Kubernetes; None where they agree, or where one has none."""
    asked = as_read_by(record, release)
    answer = ask(asked)
    if answer["outcome"] in NO_ANSWER:
        return None
    got = allocators.answer(asked, release)
    if got == allocators.UNDECIDED:
        return None
    if not compatibility.profile(release).known_bugs.unordered:
        return allocators.compared({**asked, "expect": answer}, got, release)
    if is_promised(asked, release):
        return allocators.compared({**asked, "expect": _sorted(answer)}, _sorted(got), release)
    alike = answer["outcome"] == got["outcome"] or answer.get("fatal") or got.get("fatal")
    return None if alike else f"expected {answer}\n       got {got}"


def is_promised(asked: Record, release: Release) -> bool:
    """Return whether devices are found that are a promise."""
    return bool(allocators.answer(asked, release, certain=True)["outcome"] == "allocated")


def _sorted(answer: Record) -> Record:
    """Return an answer with the devices of each claim in order of their names."""
    found = copy.deepcopy(answer)
    for one in found.get("results", ()):
        one.get("devices", {}).get("results", []).sort(key=itemgetter("request", "driver", "pool", "device"))
    return found


def as_read_by(record: Record, release: Release) -> Record:
    """Return the world without amounts with which releases before 1.37 err; for 1.35 also without what it has not.

    The API server of a 1.35 as it comes drops the capacity that a request asks for, and that devices may be shared or
    bind to their node.
    """
    if not release.before_1_37:
        return record
    text = json.dumps(record)
    for amount, other in HARMLESS.items():
        text = text.replace(f'"{amount}"', f'"{other}"')
    found: Record = json.loads(text)
    if not release.before_1_36:
        return found
    for claim in found["claims"]:
        for request in claim["spec"].get("devices", {}).get("requests", ()):
            for one in (request.get("exactly", {}), *request.get("firstAvailable", ())):
                one.pop("capacity", None)
                one.pop("tolerations", None)
    for slice_ in found["slices"]:
        for device in slice_["spec"].get("devices", ()):
            for field in ("allowMultipleAllocations", "bindsToNode"):
                device.pop(field, None)
    return {
        **found,
        "features": found["features"] | dict.fromkeys(OFF_IN_1_35, False),
        "allocator": "experimental" if release is Release.V1_34 else "incubating",
    }


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.kubernetes")
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--gates", action="store_true")
    parser.add_argument("--release", nargs="*", type=Release, choices=list(Release), default=corpus.RELEASES)
    parser.add_argument("--program", help="`controlplane` of the release, if it is built already")
    asked = parser.parse_args(arguments)
    counts = {True: 0, False: 0}
    for release in asked.release:
        with Oracle([asked.program, Oracle.PROGRAM]) if asked.program else Oracle.of(release) as oracle:
            for seed in range(asked.first, asked.end):
                found = difference(clusters.seeded(seed, gates=asked.gates), release, oracle.ask)
                counts[found is None] += 1
                if found is not None:
                    print(f"{release} seed {seed}: {found}")
    print(f"{counts[True]} agree, {counts[False]} differ")
    return min(counts[False], 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
