"""What the planner is asked and what it answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import Charge, PlannedPod
from admission.api.muster.ledger_entries import Holding
from admission.api.values.names import NodeName, Uid
from admission.api.values.reasons import Detail
from admission.dra.requests.device_use import DeviceUse


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDemand:
    """A pod to be placed, and its claims in the order of spec.resourceClaims.

    Claims that are allocated already are among them: they bind the pod to the nodes where they may be used. Pods that
    share a claim name the same claim (same UID; same key where there is no UID). extended: resources of the pod that
    classes offer; the last claim is the one for them. plugged: whether device plugins shall serve them instead, and
    that claim is not needed. subgroup: which part of the gang it is in, where parts have to be together.
    """

    pod: Pod
    claims: tuple[Claim, ...] = ()
    extended: tuple[str, ...] = ()
    plugged: bool = False
    subgroup: str = ""

    @property
    def by_devices(self) -> tuple[str, ...]:
        """Return the resources of the pod that devices serve."""
        return () if self.plugged else self.extended


class Shortfall(Protocol):
    """Why a charge is not affordable. `quota.available.Shortage` is one."""

    @property
    def message(self) -> str: ...

    @property
    def details(self) -> Mapping[str, Detail]: ...


Affordable = Callable[[Charge], Shortfall | None]
"""Judges the charge of a gang, or of the part of it that is placed so far. A larger charge never fits where a smaller
one does not."""


def anything(charge: Charge) -> None:
    """Afford every charge."""


class Choice(StrEnum):
    """Who chooses the devices of pods whose nodes are planned."""

    FIRST_FIT = "FirstFit"
    """kube-scheduler, as it does: the first that fit, pod after pod. Order and nodes are free, the devices are not."""
    FREE = "Free"
    """Muster, which allocates all claims itself: any devices that satisfy them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Colocation:
    """Where some pods shall be together: in one domain, which are the nodes that have one value of a label.

    required: the label without which there is no plan. preferred: one of which such a place is only tried first.
    colocated_with: nodes where others of them are already.
    """

    required: str = ""
    preferred: str = ""
    colocated_with: frozenset[NodeName] = frozenset()

    def labels(self, *, preferring: bool) -> tuple[str, ...]:
        """Return the labels of which they are in one domain each; preferring: also what is only preferred."""
        wanted = (self.required, self.preferred if preferring else "")
        return tuple(dict.fromkeys(label for label in wanted if label))


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Where the pods of a gang shall be together: all of them, and those of each subgroup.

    subgroups: by name, as the pods' demands have it; whoever is in none of these may be anywhere among the gang. first:
    the domain of the whole gang to look at before the others.
    """

    gang: Colocation = field(default_factory=Colocation)
    subgroups: tuple[tuple[str, Colocation], ...] = ()
    first: str = ""

    @property
    def is_required(self) -> bool:
        """Whether there are places where the gang may not be."""
        return any(each.required for each in self.each)

    @property
    def colocated_with(self) -> bool:
        """Whether others of the gang have a node already."""
        return any(each.colocated_with for each in self.each)

    @property
    def each(self) -> tuple[Colocation, ...]:
        """Return where all are to be together, and where each subgroup."""
        return (self.gang, *(own for _, own in self.subgroups))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Node and devices for every pod, in the order in which the gates must open.

    A shared claim stands at the first pod that uses it. holdings: what is newly held, by each claim that has still to
    be allocated, and by each pod that a device plugin serves; charge: the sum of what they cost. device uses: what a
    claim makes unavailable to others, by its UID (its key where it has none).
    """

    pods: tuple[PlannedPod, ...]
    charge: Charge = field(default_factory=dict)
    holdings: tuple[Holding, ...] = ()
    uses: Mapping[Uid, tuple[DeviceUse, ...]] = field(default_factory=dict)
    steps: int = 0
    """How much of the budget the search took."""
    apart: str = ""
    """Why the pods of a gang are not in one domain that would rather be; empty where they are."""
