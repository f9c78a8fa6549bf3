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


@dataclass(frozen=True, slots=True)
class Path:
    """Where a value stands in the inputs: a variable and the steps from it. Empty: nowhere that is known.

    It is a slice of Go's, as in cel-go's estimate: two paths that go on from the same one may share memory, and the
    later step replaces the earlier. So a map's keys have the size of its values in some nested macros.
    """

    cells: list[str] = field(default_factory=list)
    """The array behind the slice; its length is the capacity."""
    length: int = 0

    def extended(self, step: str) -> "Path":
        """Return the path with one step more, as Go's `append` does."""
        cells = self.cells
        if self.length == len(cells):
            cells = [*cells, *[""] * max(1, len(cells))]
        cells[self.length] = step
        return Path(cells, self.length + 1)

    def steps(self) -> list[str]:
        return self.cells[: self.length]
