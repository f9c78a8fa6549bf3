"""Answers of the planner that still stand: a gang is planned again only when something has changed for it.

A cycle runs for every change in the cluster, most of which change nothing for those who wait. As long as the world, the
quotas and their use, and the gang's own demands are what they were, so is the planner's answer. Sound, since the
planner is a function of exactly these. Only holds are kept, and only those found before the cycle's first grant.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.api.names import GangUid, MeterName, QueueName
from admission.api.queues import PlacementMode, Queue
from admission.api.reasons import Hold
from admission.dra import worlds
from admission.dra.metering import Meters
from admission.dra.plans import PodDemand
from admission.dra.worlds import World
from admission.policy.protection import Protections

Question = tuple[tuple[PodDemand, ...], PlacementMode]
"""What a gang asks for: its pods' demands, and how it is to be placed."""

Usage = Mapping[QueueName, Mapping[MeterName, int]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Basis:
    """What every gang's answer rests on."""

    world: World
    usage: Usage
    queues: Mapping[QueueName, Queue]
    meters: Meters
    steps: int
    protection: Protections

    def same(self, other: "Basis") -> bool:
        """Return whether the planner would answer alike on both."""
        return (
            self.meters is other.meters
            and self.steps == other.steps
            and self.usage == other.usage
            and self.protection == other.protection
            and self.queues == other.queues
            and worlds.same(self.world, other.world)
        )


@dataclass(slots=True)
class Recall:
    """Holds by gang, and what they rest on. One for each leader; begun anew in every cycle."""

    _basis: Basis | None = None
    _holds: dict[GangUid, tuple[Question, Hold]] = field(default_factory=dict)
    _stands: bool = False

    def begin(self, basis: Basis) -> None:
        """Start a cycle: forget everything when what it rested on has changed."""
        if self._basis is None or not self._basis.same(basis):
            self._holds.clear()
        self._basis = basis
        self._stands = True

    def end(self) -> None:
        """Say that a gang was granted: those that come after it see another world."""
        self._stands = False

    def of(self, gang: GangUid, question: Question) -> Hold | None:
        """Return the hold that still stands for a gang that asks for just this."""
        known = self._holds.get(gang) if self._stands else None
        return known[1] if known is not None and known[0] == question else None

    def keep(self, gang: GangUid, question: Question, hold: Hold) -> None:
        """Remember a hold that the planner has found."""
        if self._stands:
            self._holds[gang] = (question, hold)
