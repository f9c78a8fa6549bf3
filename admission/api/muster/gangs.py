"""Gangs: the pods that must start together, and what the controller says of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from admission.api.kubernetes import meta
from admission.api.kubernetes.devices import RequestDevice
from admission.api.kubernetes.meta import Meta, Owner
from admission.api.muster.queues import PlacementMode
from admission.api.values import durations, names, quantities
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.api.values.reasons import Denial, EvictionReason, Hold


class Phase(StrEnum):
    """Where a gang stands."""

    PENDING = "Pending"
    RESERVED = "Reserved"
    ADMITTED = "Admitted"
    RUNNING = "Running"
    FINISHED = "Finished"
    EVICTED = "Evicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedClaim:
    """A claim and the devices that a plan gives it."""

    uid: Uid
    claim: str
    """`namespace/name`."""
    devices: tuple[RequestDevice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPod:
    """A pod's part of a plan."""

    uid: Uid
    pod: str
    """`namespace/name`."""
    node: NodeName
    claims: tuple[PlannedClaim, ...] = ()


Charge = Mapping[MeterName, int]
"""Meter → amount in its base unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainWish:
    """Where somebody wants pods: in one domain, which are the nodes that have one value of a label.

    required: the label without which they do not start. preferred: one of which such a place is only tried first.
    """

    required: str = ""
    preferred: str = ""

    def __bool__(self) -> bool:
        return bool(self.required or self.preferred)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyWish:
    """Where a gang's author wants its pods. gang: all of them. subgroups: those of each subgroup."""

    gang: DomainWish = field(default_factory=DomainWish)
    subgroups: DomainWish = field(default_factory=DomainWish)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainReport:
    """What became of a wish.

    domains: where the pods are that have a node, in order; by the label that is required, or else by the one that is
    preferred. preferred: the same by that one, where there are both.
    """

    wish: DomainWish
    domains: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyReport:
    """Where a gang is together. gang: None where only its subgroups are. subgroups: by name, those that are to be."""

    gang: DomainReport | None = None
    subgroups: tuple[tuple[str, DomainReport], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """That a gang was taken back as a whole: why, when that was decided, and for which gang.

    made_room_for: `namespace/name`; empty unless it was preempted or reclaimed.
    """

    reason: EvictionReason
    message: str
    at: datetime
    made_room_for: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A Gang object as it is in the cluster: what its author wrote, and what is remembered between leaders.

    placement: what its author asks for; None where the queue decides. placed and placed_because: what was used, and
    why.
    """

    meta: Meta
    queue: QueueName
    size: int
    min_count: int | None = None
    priority: int = 0
    runtime: timedelta | None = None
    placement: PlacementMode | None = None
    topology: TopologyWish | None = None
    workload: Owner | None = None
    phase: Phase = Phase.PENDING
    placed: str = ""
    placed_because: str = ""
    charges: Charge = field(default_factory=dict)
    """What it was charged when its status was written."""
    evictions: int = 0
    evicted: Evicted | None = None
    queued_since: datetime | None = None
    next_try: datetime | None = None

    @property
    def line(self) -> str:
        """Return what it has in common with those that its controller makes in its stead."""
        return self.meta.annotations.get(names.LINE, "")

    @property
    def written_by_user(self) -> bool:
        """Whether a user wrote it; otherwise the controller made it, and it says nothing that pods do not."""
        return self.meta.labels.get(names.MANAGED_BY) != names.FIELD_MANAGER


@dataclass(frozen=True, slots=True, kw_only=True)
class GangReport:
    """What the controller writes into a Gang's status."""

    uid: GangUid
    namespace: str
    name: str
    queue: QueueName
    size: int
    priority: int = 0
    workload: Owner | None = None
    phase: Phase
    pods: int = 0
    """Pods of the gang that exist."""
    expected: int = 0
    """Pods that do not exist yet: those that its workload makes when it is resumed."""
    hold: Hold | Denial | None = None
    """Why it waits; a denial where it can never start as it is."""
    position: int | None = None
    plan: tuple[PlannedPod, ...] = ()
    charges: Charge = field(default_factory=dict)
    placement: str = ""
    placement_reason: str = ""
    topology: TopologyReport | None = None
    """None where its pods may go anywhere."""
    start_estimate: datetime | None = None
    start_reason: str = ""
    """When it is to start, and why then; or why nobody knows."""
    evictions: int = 0
    evicted: Evicted | None = None
    """That it was taken back, until it runs again."""
    queued_since: datetime | None = None
    next_try: datetime | None = None
    line: str = ""
    """What it has in common with those that its controller makes in its stead; empty where it makes none."""
    over: bool = False
    """Nothing of it is left that could want its object, which Muster has made and takes away."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def decode(obj: Json) -> Gang:
    """Read a Gang."""
    reader = Reader(obj)
    spec, status = reader.child("spec"), reader.child("status")
    phase = status.text("phase", Phase.PENDING)
    result = Gang(
        meta=meta.decode(reader),
        queue=QueueName(spec.required("queue")),
        size=spec.integer("size", 1),
        min_count=spec.integer("minCount") if "minCount" in spec else None,
        priority=spec.integer("priority"),
        runtime=spec.parsed("runtime", durations.parse, None) or None,
        placement=_placement(spec),
        topology=decode_topology(spec) if "topology" in spec else None,
        workload=_workload(spec.child("workload")) if "workload" in spec else None,
        phase=Phase(phase) if phase in set(Phase) else Phase.PENDING,
        placed=status.text("placement"),
        placed_because=status.text("placementReason"),
        charges={
            MeterName(meter): status.child("charges").parsed(meter, quantities.parse_amount, 0)
            for meter in status.keys("charges")
        },
        evictions=status.integer("evictions"),
        evicted=decode_evicted(status.child("evicted")) if "evicted" in status else None,
        queued_since=status.time("queuedSince"),
        next_try=status.time("nextTry"),
    )
    reader.finish("Gang", result.meta.key)
    return result


def decode_topology(reader: Reader) -> TopologyWish | None:
    """Read the field `topology` of a Gang's spec."""
    wanted = reader.child("topology")
    wish = TopologyWish(gang=decode_wish(wanted), subgroups=decode_wish(wanted.child("subgroups")))
    if wish.gang or wish.subgroups:
        return wish
    reader.problem("topology", "needs required, preferred or subgroups")
    return None


def decode_wish(reader: Reader) -> DomainWish:
    """Read the labels of one domain."""
    return DomainWish(required=reader.text("required"), preferred=reader.text("preferred"))


def decode_evicted(reader: Reader) -> Evicted | None:
    """Read the field `evicted` of a Gang's status; None where another release wrote a reason that this one lacks."""
    reason, at = reader.text("reason"), reader.time("at")
    if reason not in set(EvictionReason) or at is None:
        return None
    return Evicted(
        reason=EvictionReason(reason),
        message=reader.text("message"),
        at=at,
        made_room_for=reader.text("madeRoomFor"),
    )


def _placement(spec: Reader) -> PlacementMode | None:
    text = spec.text("placement")
    if text and text not in set(PlacementMode):
        spec.problem("placement", f"{text!r} is not one of {', '.join(PlacementMode)}")
        return None
    return PlacementMode(text) if text else None


def _workload(reader: Reader) -> Owner:
    return Owner(
        api_version=reader.text("apiVersion"),
        kind=reader.text("kind"),
        name=reader.text("name"),
        uid=Uid(reader.text("uid")),
        controller=True,
    )
