"""Size estimates for the static cost: ranges of sizes, and the declared sizes of an environment's inputs.

A size is the result of `size()`: code points, octets, elements or entries. Costs and sizes are unsigned 64-bit numbers
that saturate instead of overflowing, and factors are doubles, as in cel-go (checker/cost.go, v0.26).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

MAX = 2**64 - 1
"""The largest cost, and the upper bound of an unknown size."""

STRING_FACTOR = 0.1
"""The cost of reading one code point (common/cost.go)."""

PATTERN_FACTOR = 0.25
"""The cost of one code point of a pattern, for each code point of the text."""

LIST_COST = 10
MAP_COST = 30
MESSAGE_COST = 40


class Size(NamedTuple):
    """A range of sizes (cel-go: SizeEstimate)."""

    least: int
    most: int

    def plus(self, other: "Size") -> "Size":
        return Size(min(self.least + other.least, MAX), min(self.most + other.most, MAX))

    def times(self, other: "Size") -> "Size":
        return Size(min(self.least * other.least, MAX), min(self.most * other.most, MAX))

    def union(self, other: "Size") -> "Size":
        return Size(min(self.least, other.least), max(self.most, other.most))


UNKNOWN = Size(0, MAX)
EMPTY = Size(0, 0)
ONE = Size(1, 1)


def scaled(size: int, factor: float) -> int:
    """Return the product of a size and a factor, rounded up."""
    product = math.ceil(float(size) * factor)
    return min(product, MAX)


class Entry(NamedTuple):
    """The sizes of a list's or map's keys and values."""

    is_list: bool
    key: Size
    value: Size

    def union(self, other: "Entry") -> "Entry":
        return Entry(self.is_list, self.key.union(other.key), self.value.union(other.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredSize:
    """The largest size of an input, and of its parts.

    named: the size of any name that is selected from a map, if one is declared.
    """

    most: int = 0
    key: "DeclaredSize | None" = None
    value: "DeclaredSize | None" = None
    named: "DeclaredSize | None" = None
    fields: Mapping[str, "DeclaredSize"] = field(default_factory=dict)

    def part(self, step: str) -> "DeclaredSize | None":
        """Return the declaration at the next step of a path."""
        match step:
            case "@items" | "@values":
                return self.value
            case "@keys":
                return self.key
            case _:
                return self.fields.get(step, self.named)
