"""Where the search over pods and nodes has put them, and what it met."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.api.values.names import NodeName
from admission.dra.allocator.allocation import Given
from admission.dra.equivalence.device_signature import Trait
from admission.dra.inventory.pools import Spot
from admission.dra.planner.pod_groups import Wanted
from admission.dra.requests.gang_request import Shortfall
from admission.dra.requests.requests import Ask, Option, Refusal


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod's place: its kind, its number among the members, its node, and per claim the devices."""

    kind: int
    member: int
    node: int
    claims: tuple[tuple[Wanted, tuple[Given, ...]], ...]


def given(option: Option, spot: Spot, trait: Trait, asks: Mapping[Ask, int]) -> Given:
    """Return a device that a search has found. asks: the numbers of what options ask for."""
    if not trait.shared:
        return Given(option, spot)
    return Given(option, spot, shared=True, consumed=trait.consumed(asks[option.ask]))


@dataclass(slots=True)
class Outcome:
    """What the search met.

    names: of the nodes, by number. placed: the plan when `done`; else, of a greedy search, how far it came. stuck: the
    kind that found no place there. shortfall: the first charge that was not affordable. refusals: what stopped the
    search of devices, and for which kind and which of its claims, in the order met.
    """

    names: list[NodeName]
    done: bool = False
    placed: list[Placed] = field(default_factory=list)
    stuck: int | None = None
    shortfall: Shortfall | None = None
    refusals: dict[Refusal, tuple[int, int | None]] = field(default_factory=dict)
