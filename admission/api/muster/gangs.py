"""Gangs: the pods that must start together, with their status."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from admission.api.device_use import idle, memory
from admission.api.device_use.idle import IdleDevices
from admission.api.device_use.memory import MemoryExceeded
from admission.api.kubernetes import meta
from admission.api.kubernetes.devices import RequestDevice
from admission.api.kubernetes.meta import Meta, Owner
from admission.api.muster import gang_requests
from admission.api.muster.gang_requests import AnsweredRequest, GangRequest
from admission.api.muster.queues import PlacementMode
from admission.api.values import durations, names, quantities, reasons, references
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.api.values.reasons import Denial, EvictionReason, Hold
from admission.api.values.references import Kind, References, Referent


class Phase(StrEnum):
    """The phase of a gang."""

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
class DomainRequest:
    """A topology request for pods: to be in one domain, which is the set of nodes with one value of a label.

    required: the label of a required domain. preferred: the label of a domain that is tried first.
    """

    required: str = ""
    preferred: str = ""

    def __bool__(self) -> bool:
        return bool(self.required or self.preferred)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRequest:
    """The topology request of a gang. gang: for all of its pods. subgroups: for the pods of each subgroup."""

    gang: DomainRequest = field(default_factory=DomainRequest)
    subgroups: DomainRequest = field(default_factory=DomainRequest)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainReport:
    """The outcome of a topology request.

    domains: the domains of the pods that have a node, sorted; by the required label, else by the preferred one.
    preferred: the domains by the preferred label, if there are both.
    """

    request: DomainRequest
    domains: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyReport:
    """The domains of a gang. gang: None if only its subgroups have a request. subgroups: by name, those with one."""

    gang: DomainReport | None = None
    subgroups: tuple[tuple[str, DomainReport], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """The eviction of a whole gang. at: the time of the decision.

    made_room_for: `namespace/name` of the gang that it made room for; empty unless it was preempted or reclaimed, or
    if the reader may not know it. references: of the message, without a name in it.
    """

    reason: EvictionReason
    message: str
    at: datetime
    made_room_for: str = ""
    references: References = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPod:
    """A pod of an earlier plan that kube-scheduler did not bind to its node.

    shape: a digest of what pods like it ask for. bound: how many of these were bound there. message: kube-scheduler's.
    """

    shape: str
    pod: str
    node: NodeName
    bound: int
    message: str
    at: datetime


class RecordedHold(NamedTuple):
    """Why a gang is held, as its status says, and since when. reason: one of holds or denials."""

    reason: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """A Gang object in the cluster: its spec, and the state in its status that survives a change of leader.

    placement: as in the spec; None where the queue decides. last_placement and last_placement_reason: the one used, and
    why.
    """

    meta: Meta
    queue: QueueName
    size: int
    min_count: int | None = None
    priority: int = 0
    runtime: timedelta | None = None
    placement: PlacementMode | None = None
    topology: TopologyRequest | None = None
    workload: Owner | None = None
    request: GangRequest | None = None
    phase: Phase = Phase.PENDING
    last_placement: str = ""
    last_placement_reason: str = ""
    last_placement_references: References = ()
    charges: Charge = field(default_factory=dict)
    """Its charge when its status was written."""
    evictions: int = 0
    evicted: Evicted | None = None
    answered: AnsweredRequest | None = None
    queued_since: datetime | None = None
    next_try: datetime | None = None
    refused: tuple[RefusedPod, ...] = ()
    idle: IdleDevices | None = None
    """That it is idle, as its status says; the policy may be another one by now."""
    memory: MemoryExceeded | None = None
    """That more memory of its devices is in use than was asked for, as its status says."""
    recorded_hold: RecordedHold | None = field(default=None, compare=False)
    """The hold in its status. It follows from all else, so a Gang in which it alone differs has not changed."""

    @property
    def position_key(self) -> str:
        """Return a key that is equal for the gangs that its controller creates one after the other in its place."""
        return self.meta.annotations.get(names.POSITION_KEY, "")

    @property
    def written_by_user(self) -> bool:
        """Whether a user created it; otherwise Muster's controller did, and its spec repeats what its pods say."""
        return self.meta.labels.get(names.MANAGED_BY) != names.FIELD_MANAGER


@dataclass(frozen=True, slots=True, kw_only=True)
class GangReport:
    """The status of a Gang, as the controller writes it."""

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
    """Pods that its workload will create when it is resumed."""
    hold: Hold | Denial | None = None
    """Why it waits; a denial where it can never start in its present form."""
    needed: Charge = field(default_factory=dict)
    """While it waits, a lower bound on its charge."""
    position: int | None = None
    plan: tuple[PlannedPod, ...] = ()
    charges: Charge = field(default_factory=dict)
    placement: str = ""
    placement_reason: str = ""
    topology: TopologyReport | None = None
    """None without a topology request."""
    idle: IdleDevices | None = None
    """None if its devices are in use, or if that is not known."""
    memory: MemoryExceeded | None = None
    """None if no more memory of its devices is in use than was asked for, or if that is not known."""
    start_estimate: datetime | None = None
    start_reason: str = ""
    """The reason for the estimate, or why there is none."""
    not_simulated: tuple[str, ...] = ()
    """What kube-scheduler asks of its pods that was not judged."""
    later: tuple[str, ...] = ()
    """Why pods that its workload makes later never fit."""
    placement_references: References = ()
    start_references: References = ()
    evictions: int = 0
    evicted: Evicted | None = None
    """Its latest eviction, until it runs again."""
    answered: AnsweredRequest | None = None
    """The last request that was answered."""
    queued_since: datetime | None = None
    next_try: datetime | None = None
    refused: tuple[RefusedPod, ...] = ()
    """Where kube-scheduler refused pods of earlier plans."""
    position_key: str = ""
    """Its position key: equal for the gangs that its controller creates one after the other in its place; or empty."""
    over: bool = False
    """Whether nothing of it is left that needs its Gang object, so that Muster removes the object if it created it."""
    had_pods: bool = field(default=False, compare=False)
    """Whether it had pods that have gone before its Gang object was made."""

    @property
    def has_or_had_pods(self) -> bool:
        """Whether a Gang object is made for it."""
        return bool(self.pods or self.expected or self.had_pods)

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def can_never_start(self) -> bool:
        """Whether waiting does not help: it never fits, or something is wrong with it."""
        return self.never_fits or isinstance(self.hold, Denial)

    @property
    def never_fits(self) -> bool:
        """Whether none of it has a place, and it would not fit even if nothing else were in use."""
        if self.phase is not Phase.PENDING or not isinstance(self.hold, Hold):
            return False
        return reasons.never_fits(self.hold, self.needed)


def decode(obj: Json) -> Gang:
    """Decode a Gang."""
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
        request=gang_requests.decode(spec.child("request")) if "request" in spec else None,
        phase=Phase(phase) if phase in set(Phase) else Phase.PENDING,
        last_placement=status.text("placement"),
        last_placement_reason=status.text("placementReason"),
        last_placement_references=references.decode(
            status.children("placementReferences"), reader.child("metadata").text("namespace")
        ),
        charges={
            MeterName(meter): status.child("charges").parsed(meter, quantities.parse_amount, 0)
            for meter in status.keys("charges")
        },
        evictions=status.integer("evictions"),
        evicted=decode_evicted(status.child("evicted"), reader.child("metadata").text("namespace"))
        if "evicted" in status
        else None,
        answered=gang_requests.decode_answered(status.child("request")) if "request" in status else None,
        queued_since=status.time("queuedSince"),
        next_try=status.time("nextTry"),
        refused=tuple(_decode_refused(status)),
        idle=idle.decode_status(status.child("idle"), QueueName(spec.text("queue"))) if "idle" in status else None,
        memory=memory.decode_status(status.child("memory")) if "memory" in status else None,
        recorded_hold=_decode_hold(status.child("hold")) if "hold" in status else None,
    )
    reader.finish("Gang", result.meta.key)
    return result


def _decode_hold(hold: Reader) -> RecordedHold | None:
    since = hold.time("since")
    return RecordedHold(hold.text("reason"), since) if since is not None else None


def _decode_refused(status: Reader) -> Iterator[RefusedPod]:
    for one in status.children("refused"):
        at = one.time("at")
        if at is not None:
            yield RefusedPod(
                shape=one.text("shape"),
                pod=one.text("pod"),
                node=NodeName(one.text("node")),
                bound=one.integer("bound"),
                message=one.text("message"),
                at=at,
            )


def decode_topology(reader: Reader) -> TopologyRequest | None:
    """Decode the field `topology` of a Gang's spec."""
    wanted = reader.child("topology")
    request = TopologyRequest(
        gang=decode_domain_request(wanted), subgroups=decode_domain_request(wanted.child("subgroups"))
    )
    if request.gang or request.subgroups:
        return request
    reader.problem("topology", "needs required, preferred or subgroups")
    return None


def decode_domain_request(reader: Reader) -> DomainRequest:
    """Decode the labels of one domain."""
    return DomainRequest(required=reader.text("required"), preferred=reader.text("preferred"))


MADE_ROOM_FOR = "madeRoomFor"
"""The key of the reference to the gang that an evicted one made room for."""


def decode_evicted(reader: Reader, namespace: str) -> Evicted | None:
    """Decode `evicted` of a Gang's status; None if its reason is unknown, as one of another release may be."""
    reason, at = reader.text("reason"), reader.time("at")
    if reason not in set(EvictionReason) or at is None:
        return None
    message, made_room_for = reader.text("message"), reader.text(MADE_ROOM_FOR)
    found = references.decode(reader.children("references"), namespace)
    if made_room_for and not found:
        message, found = _referring(message, made_room_for)
    return Evicted(reason=EvictionReason(reason), message=message, at=at, made_room_for=made_room_for, references=found)


def _referring(message: str, gang: str) -> tuple[str, References]:
    """Return a message of an older Muster, which names a gang, with a reference to the gang in place of its name."""
    reference = references.refer([Referent(kind=Kind.GANG, key=gang)], detail=MADE_ROOM_FOR)
    return message.replace(f"gang {gang}", reference.phrase, 1), (reference,)


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
