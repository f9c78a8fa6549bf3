"""The input and output types of the gang planner: demands, topology and plan."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from admission.api.kubernetes import nodes
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.nodes import Resources
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import Charge, PlannedPod
from admission.api.muster.ledger_entries import Holding
from admission.api.values.names import NodeName, Uid
from admission.api.values.reasons import Detail
from admission.dra.requests.device_use import DeviceUse


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRules:
    """The rules between pods of a pod in an exclusive domain, in two parts, each as a pod with these alone.

    domain: those that no pod of the gang breaks, since the topology gives each part a domain of its own; pods that are
    there may. rest: all others.
    """

    domain: Pod
    rest: Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDemand:
    """A pod to be placed, and its claims in the order of spec.resourceClaims.

    Claims that are allocated already are among them: they bind the pod to the nodes where they may be used. Pods that
    share a claim have the same claim (same UID, or same key if it has no UID). extended: resources of the pod that
    classes offer. plugged: those of them that device plugins serve instead; the last claim is the one for the others,
    and left out if there are none. subgroup: the part of the gang that the pod is in, if parts have to be together.
    kept_to: the only nodes for the pod, since kube-scheduler might give it devices of another kind on others; None for
    all. follows: whether the pod is made once those that do not are bound. It takes part in the search after them, and
    not in the plan. split: its rules, where the topology stands for some of them.
    """

    pod: Pod
    claims: tuple[Claim, ...] = ()
    extended: tuple[str, ...] = ()
    plugged: frozenset[str] = frozenset()
    subgroup: str = ""
    kept_to: frozenset[NodeName] | None = None
    follows: bool = False
    split: SplitRules | None = None

    @property
    def by_devices(self) -> tuple[str, ...]:
        """Return the resources of the pod that devices serve."""
        return tuple(name for name in self.extended if name not in self.plugged)

    def own_names(self, claim: Claim) -> tuple[str, ...]:
        """Return the pod's own names for one of its claims; none for that of its extended resources."""
        pairs = zip(self.pod.claims, self.claims, strict=False)
        return tuple(own.name for own, one in pairs if one.meta.key == claim.meta.key)


class Shortfall(Protocol):
    """Why a charge is not affordable. `quota.shortage.Shortage` is one."""

    @property
    def message(self) -> str: ...

    @property
    def details(self) -> Mapping[str, Detail]: ...


Affordable = Callable[[Charge], Shortfall | None]
"""Checks the charge of a gang, or of the part of it that is placed so far. Monotonic: if a charge is not affordable, no
larger one is."""


def anything(charge: Charge) -> None:
    """Accept every charge: no quota."""


class Choice(StrEnum):
    """Which component chooses the devices of planned pods."""

    FIRST_FIT = "FirstFit"
    """kube-scheduler: the first that fit, pod after pod. Order and nodes are free, the devices are not."""
    FREE = "Free"
    """Muster, which allocates all claims itself: any devices that satisfy them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Colocation:
    """Some pods that have to be in one domain: on nodes with the same value of a label.

    required: the label in whose domain they must be. preferred: a label in whose domain they should be if possible.
    colocated_with: the nodes where other pods of the group are already. exclusive: the label in whose domain they must
    be as well, without another group that has one. followers: how many more pods like its first one are made once that
    is bound, each on some node of this domain.
    """

    required: str = ""
    preferred: str = ""
    colocated_with: frozenset[NodeName] = frozenset()
    exclusive: str = ""
    followers: int = 0

    def labels(self, *, preferring: bool) -> tuple[str, ...]:
        """Return the labels whose domains apply; preferring: the preferred one included."""
        wanted = (self.exclusive, self.required, self.preferred if preferring else "")
        return tuple(dict.fromkeys(label for label in wanted if label))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLabels:
    """Labels of pods by which their workload numbers them. part: names the pod's part. index: its number in that."""

    part: str
    index: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The colocation of a gang's pods: of all of them, and of each subgroup.

    subgroups: by name, as in the pods' demands; a pod in none of them is bound by `gang` only. first: the domain of the
    whole gang to search before the others. labels: those of pods in subgroups with exclusive domains.
    """

    gang: Colocation = field(default_factory=Colocation)
    subgroups: tuple[tuple[str, Colocation], ...] = ()
    first: str = ""
    labels: PartLabels | None = None

    @property
    def is_required(self) -> bool:
        """Whether any label is required, and not just preferred."""
        return any(each.required for each in self.each)

    @property
    def is_asked(self) -> bool:
        """Whether anybody asks for a topology, beside the exclusive domains of the workload's own controller."""
        return any(each.required or each.preferred for each in self.each)

    @property
    def binds(self) -> bool:
        """Whether there are domains that the gang waits for."""
        return any(each.required or each.exclusive for each in self.each)

    @property
    def colocated_with(self) -> bool:
        """Whether other pods of the gang are on nodes already."""
        return any(each.colocated_with for each in self.each)

    @property
    def each(self) -> tuple[Colocation, ...]:
        """Return the colocation of the whole gang, then that of each subgroup."""
        return (self.gang, *(own for _, own in self.subgroups))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Node and devices for every pod, in the order in which the gates must open.

    A shared claim is with the first pod that uses it. holdings: of each claim that has still to be allocated, and of
    each pod whose requests of its node a meter counts. charge: their sum. uses: what each claim makes unavailable to
    others, by its UID, or its key if it has none. by_devices: what devices take of a pod's node beside its requests, by
    the pod's UID.
    """

    pods: tuple[PlannedPod, ...]
    charge: Charge = field(default_factory=dict)
    holdings: tuple[Holding, ...] = ()
    uses: Mapping[Uid, tuple[DeviceUse, ...]] = field(default_factory=dict)
    steps: int = 0
    """How many steps of the budget the search spent."""
    apart: str = ""
    """Why the plan does not meet a preferred topology; empty if it does."""
    by_devices: Mapping[Uid, Resources] = field(default_factory=dict)

    def taken_by(self, pod: Pod) -> Resources:
        """Return what a pod of the plan takes of its node."""
        return nodes.total((pod.requests, self.by_devices.get(pod.meta.uid, {})))
