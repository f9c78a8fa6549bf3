"""What one evaluation may take besides its cost: steps of loops, and sizes of what it builds, charged before building.

The API's own limit is a cost of 1,000,000 (CELSelectorExpressionMaxCost), which `counting` counts. These bounds hold
for what costs little or nothing in cel-go but much here, or charges only after building.
"""

from admission.dra.cel import failures

STEPS = 1_000_000
"""Turns of loops. cel-go charges for most turns 2 and more, for a few of them nothing."""

MAX_SIZE = 1_000_000
"""Elements of one list, or characters of a text whose length cel-go does not charge."""

MAX_TEXT = 10_000_000
"""Characters of a text that cel-go charges by its length, a tenth each."""


def exceeded() -> failures.AbortError:
    return failures.AbortError("operation cancelled: actual cost limit exceeded")


def check_size(size: int, most: int = MAX_SIZE) -> None:
    """Raise AbortError before something of this size is built."""
    if size > most:
        raise exceeded()


def charge_size(size: int) -> int:
    """Return the steps that a value of this size takes: less than the tenth a character that cel-go charges."""
    return size >> 5
