"""Asks the device allocator that kube-scheduler has linked in, without a cluster around it.

A question is a record of the conformance corpus (its README lists the keys), the answer what such a record expects:
`outcome` (allocated, none or error; also timeout after five seconds, and panic), `fatal`, `error` and `results`, one
status.allocation per claim, each random share id written `<uuid>`.
"""

from collections.abc import Mapping
from typing import Any

from tests.controlplane import oracles

KEYS = (
    "features",
    "allocator",
    "node",
    "classes",
    "slices",
    "claims",
    "allocated",
    "sharedDevices",
    "consumedCapacity",
)
"""What of a record is the question."""


class Oracle(oracles.Oracle):
    """One running allocator."""

    PROGRAM = "allocate"

    def ask(self, record: Mapping[str, Any]) -> dict[str, Any]:
        return super().ask({key: record[key] for key in KEYS})
