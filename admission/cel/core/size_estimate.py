"""Sizes of values before they are known, for the static cost: a range, and what an environment declares of its inputs.

A size is what `size()` gives: code points, octets, elements or entries. Costs and sizes are 64-bit numbers that stop at
their largest instead of overflowing, and factors are doubles, as in cel-go (checker/cost.go, v0.26).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

MAX = 2**64 - 1
"""Both the largest cost and a size that is not known."""

STRING_FACTOR = 0.1
"""The cost of reading one code point (common/cost.go)."""

PATTERN_FACTOR = 0.25
"""The cost of one code point of a pattern, for each of the text's."""

LIST_COST = 10
MAP_COST = 30
MESSAGE_COST = 40


class Size(NamedTuple):
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
    """Return a size by a factor, rounded up."""
    product = math.ceil(float(size) * factor)
    return min(product, MAX)


class Entry(NamedTuple):
    """The sizes of what a list or map holds."""

    is_list: bool
    key: Size
    value: Size

    def union(self, other: "Entry") -> "Entry":
        return Entry(self.is_list, self.key.union(other.key), self.value.union(other.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredSize:
    """The largest size of an input, and what is declared of its parts.

    named: stands for every name that is selected from a map, where that is allowed for.
    """

    most: int = 0
    key: "DeclaredSize | None" = None
    value: "DeclaredSize | None" = None
    named: "DeclaredSize | None" = None
    fields: Mapping[str, "DeclaredSize"] = field(default_factory=dict)

    def part(self, step: str) -> "DeclaredSize | None":
        """Return what is declared one step of a path further."""
        match step:
            case "@items" | "@values":
                return self.value
            case "@keys":
                return self.key
            case _:
                return self.fields.get(step, self.named)
