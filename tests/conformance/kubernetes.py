"""The allocator held against Kubernetes' own, asked now instead of recorded: on random worlds, as many as wanted.

    python -m tests.conformance.kubernetes 0 20000            # the worlds of these seeds, on every release
    python -m tests.conformance.kubernetes 0 20000 --gates    # with feature gates on and off

prints each seed whose answers differ, and closes with `N agree, M differ`. Needs Go once, to build Kubernetes.
"""

import argparse
import json
import sys
from typing import Any

from admission.dra.compatibility import Release
from tests.conformance import allocators
from tests.controlplane.allocators import Oracle
from tests.property import clusters

Record = dict[str, Any]

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


def difference(record: Record, release: Release, oracle: Oracle) -> str | None:
    """Return how our answer differs from the one of this Kubernetes; None where they agree, or where one has none."""
    asked = as_read_by(record, release)
    answer = oracle.ask(asked)
    if answer["outcome"] in NO_ANSWER:
        return None
    got = allocators.answer(asked, release)
    return None if got == allocators.UNDECIDED else allocators.compared({**asked, "expect": answer}, got, release)


def as_read_by(record: Record, release: Release) -> Record:
    """Return the world without amounts with which 1.36 errs."""
    if release is not Release.V1_36:
        return record
    text = json.dumps(record)
    for amount, other in HARMLESS.items():
        text = text.replace(f'"{amount}"', f'"{other}"')
    found: Record = json.loads(text)
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.kubernetes")
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--gates", action="store_true")
    asked = parser.parse_args(arguments)
    counts = {True: 0, False: 0}
    for release in Release:
        with Oracle.of(release) as oracle:
            for seed in range(asked.first, asked.end):
                found = difference(clusters.seeded(seed, gates=asked.gates), release, oracle)
                counts[found is None] += 1
                if found is not None:
                    print(f"{release} seed {seed}: {found}")
    print(f"{counts[True]} agree, {counts[False]} differ")
    return min(counts[False], 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
