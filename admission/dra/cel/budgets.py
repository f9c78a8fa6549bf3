"""What one evaluation may take: steps of loops, and sizes of what it builds, charged before building.

The API's own limit is a cost of 1,000,000 (CELSelectorExpressionMaxCost). cel-go charges at least 2 for a turn of a
loop, which is a step here, so nothing that Kubernetes evaluates to the end is stopped.
"""

from admission.dra.cel import failures

STEPS = 500_000
MAX_SIZE = 1_000_000
"""Characters or elements of one value. cel-go stops a little later, at a tenth of its limit a character."""


def exceeded() -> failures.AbortError:
    return failures.AbortError("operation cancelled: actual cost limit exceeded")


def check_size(size: int) -> None:
    """Raise AbortError before something of this size is built."""
    if size > MAX_SIZE:
        raise exceeded()


def charge_size(size: int) -> int:
    """Return the steps that a value of this size takes: less than the tenth a character that cel-go charges."""
    return size >> 5
