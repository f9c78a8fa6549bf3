"""What one evaluation may take: steps of loops, and sizes of what it builds, charged before building.

The API's own limit is a cost of 1,000,000 (CELSelectorExpressionMaxCost). A step here never costs more than cel-go
charges for the same, so nothing that Kubernetes evaluates is stopped.
"""

from admission.dra.cel import failures

STEPS = 1_000_000
MAX_SIZE = 10_000_000
"""Characters or elements of one value."""


def exceeded() -> failures.AbortError:
    return failures.AbortError("operation cancelled: actual cost limit exceeded")


def check_size(size: int) -> None:
    """Raise AbortError before something of this size is built."""
    if size > MAX_SIZE:
        raise exceeded()
