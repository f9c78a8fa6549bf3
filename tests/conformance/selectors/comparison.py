"""An answer of Kubernetes' compiler of selectors held against Muster's.

Costs of nested macros are not compared but for the worst case: they depend on the order of maps.
"""

from collections.abc import Mapping
from typing import Any

from tests.conformance import cels

PANIC = "panic"
CRASH = "internal error"
"""What an evaluation has cost that crashed tells nothing."""


def difference(record: Mapping[str, Any], answer: Mapping[str, Any], version: str) -> str | None:
    """Return how our answer differs from the one of a Kubernetes; None where they agree, or where that has none.

    version: the release to answer as.
    """
    if answer["compile"] == PANIC:
        return None
    has_cost = record["touches"] != ["nested"] and CRASH not in str(answer["runtimeError"])
    expect = {**answer, "cost": answer["cost"] if has_cost else None}
    return cels.difference({**record, "expect": expect, "expect137": expect}, version)
