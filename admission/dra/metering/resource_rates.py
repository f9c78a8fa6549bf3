"""The charge of what a pod requests of its node: on each meter the exact sum of all rates, rounded up once.

Where a core and a GiB cost 1 each, a pod of half a core and half a GiB costs 1, and so does one of half a core alone.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from admission.api.kubernetes.nodes import Resources
from admission.api.muster.meters import ResourceRate


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The rates of one meter over a common divisor: a resource costs its amount times its weight, over `divisor`."""

    weights: Mapping[str, int]
    divisor: int

    @classmethod
    def build(cls, rates: Iterable[ResourceRate]) -> Self:
        known = tuple(rates)
        divisor = math.lcm(*(rate.per for rate in known))
        return cls(weights={rate.name: rate.factor * (divisor // rate.per) for rate in known}, divisor=divisor)

    def amount(self, resources: Resources) -> int:
        """Return what these resources of one pod cost, in whole units of the meter."""
        total = sum(resources.get(name, 0) * weight for name, weight in self.weights.items())
        return -(-total // self.divisor)
