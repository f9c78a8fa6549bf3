"""The work that one review may cause, counted in units instead of time, so that the answer is the same everywhere.

Code that works through input of which a user may send much charges it first. What exceeds the budget is refused: a long
review delays all others, and the API server gives up after seconds.
"""

from enum import Enum
from typing import Any

import msgspec

from admission.errors import TooMuchWorkError

UNITS = 100_000
"""The budget of one review. A unit is about a microsecond of one core, which `tests.bench hostile` measures."""


SPARE_UNITS = 10_000
"""What may be spent besides on what can be left out, such as the correction of a mistake that is only warned of."""


class Work(Enum):
    """What is charged: its units, what it is called, and what the author of the object can do."""

    AMOUNT = 20, "amounts of resources", "name fewer resources"
    CONTAINER = 40, "containers", "use fewer containers in one pod"
    POD_CLAIM = 60, "claims of a pod", "use fewer claims in one pod"
    CONTAINER_CLAIM = 5, "claims of containers", "name fewer claims, or each for one container only"
    CONTAINER_RESOURCE = 10, "containers times converted resources", "use fewer containers in one pod"
    REQUEST = 200, "requests of a claim with their alternatives", "spread them over several claims"
    KNOWN_REQUEST = 20, "requests of the claims of a pod", "use fewer claims in one pod"
    CHANGE = 10, "changes to the object", "write the fields that are filled in"
    VALUE = 2, "fields and elements", "write a smaller object"
    TOKEN = 18, "words of CEL", "write shorter expressions, or the same one in all places"
    PATTERN = 150, "regular expressions", "use fewer calls of matches()"
    LARGE_PATTERN = 3_000, "large regular expressions", "use fewer calls of matches() with repetitions and escapes"
    EVALUATION = 5, "rules and defaults asked of requests", "use fewer requests in one claim"
    TEMPLATE = 20, "pod templates", "use fewer of them in one workload"

    def __init__(self, units: int, noun: str, remedy: str) -> None:
        self.units = units
        self.noun = noun
        self.remedy = remedy

    @property
    def most(self) -> int:
        """Return how many fit into a budget that is spent on nothing else."""
        return UNITS // self.units


class WorkBudget:
    """What is left for one review."""

    __slots__ = ("_counts", "left", "spare")

    def __init__(self) -> None:
        self.left = UNITS
        self.spare = SPARE_UNITS
        self._counts: dict[Work, int] = {}

    @property
    def spent(self) -> int:
        """Return the units that were charged."""
        return UNITS - self.left

    def charge(self, work: Work, count: int = 1) -> None:
        """Take the units of this much work. Raises TooMuchWorkError if they exceed what is left."""
        self._counts[work] = self._counts.get(work, 0) + count
        self.left -= work.units * count
        if self.left < 0:
            raise TooMuchWorkError(self._message(), {one.name.lower(): n for one, n in self._counts.items()})

    def affords(self, work: Work, count: int) -> bool:
        """Return whether work that may be left out is affordable, and take its units from what is spare."""
        if work.units * count > self.spare:
            return False
        self.spare -= work.units * count
        return True

    def charge_values(self, value: Any) -> None:
        """Charge the fields and elements of a JSON value, about. Raises TooMuchWorkError."""
        self.charge(Work.VALUE, values_in(value))

    def _message(self) -> str:
        """Return which work exceeds the budget, most expensive first, and what its author can do."""
        parts = sorted(self._counts.items(), key=lambda item: item[0].units * item[1], reverse=True)
        listed = ", ".join(f"{count:,} {work.noun} (at most {work.most:,} alone)" for work, count in parts[:3])
        return f"the review takes more work than one may: {listed}; {parts[0][0].remedy}"


def values_in(value: Any) -> int:
    """Return about how many fields and elements a JSON value has, and never fewer."""
    # A comma or bracket within a text counts, too.
    encoded = _encode(value)
    return 1 + encoded.count(b",") + encoded.count(b"{") + encoded.count(b"[")


_encode = msgspec.json.Encoder().encode
