"""Objects together with their status, for readers of the cluster such as the dashboard.

The controller decides by specs alone; readers need the status too, and since when a gang has been held.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from admission.api.capacity import node_shapes
from admission.api.capacity.node_shapes import NodeShape
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceClass, Slice
from admission.api.kubernetes.meta import Condition, Meta
from admission.api.kubernetes.nodes import Node
from admission.api.muster import gangs, meters, queues, status_views
from admission.api.muster.gangs import GangReport
from admission.api.muster.meters import Meter
from admission.api.muster.queues import Queue
from admission.api.muster.status_reports import QueueReport
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import MeterName, NodeName, QueueName
from admission.errors import MalformedObjectError


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedQueue:
    """A Queue and its status."""

    meta: Meta
    queue: Queue
    report: QueueReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedGang:
    """A Gang and its status.

    held_since: the time since which it has waited for its present reason. admitted_since, running_since: since when its
    gates have been open, and all its pods have run.
    """

    meta: Meta
    report: GangReport
    held_since: datetime | None = None
    admitted_since: datetime | None = None
    running_since: datetime | None = None
    runtime: timedelta | None = None
    min_count: int | None = None

    @property
    def key(self) -> str:
        return self.report.key


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedMeter:
    """A Meter and its status. outside: by class, the devices that pods outside every queue hold."""

    meta: Meta
    meter: Meter
    outside: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedShape:
    """A NodeShape and its conditions, by type. up_since: when the condition `Up` last changed."""

    meta: Meta
    shape: NodeShape
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    up_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedObjects:
    """One frozen view. Gangs and claims are keyed `namespace/name`; troubles: why kinds may be out of date."""

    queues: Mapping[QueueName, ObservedQueue] = field(default_factory=dict)
    gangs: Mapping[str, ObservedGang] = field(default_factory=dict)
    meters: Mapping[MeterName, ObservedMeter] = field(default_factory=dict)
    shapes: Mapping[str, ObservedShape] = field(default_factory=dict)
    nodes: Mapping[NodeName, Node] = field(default_factory=dict)
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    slices: Mapping[str, Slice] = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    malformed: Mapping[tuple[str, str], MalformedObjectError] = field(default_factory=dict)
    troubles: Mapping[str, str] = field(default_factory=dict)


def decode_queue(obj: Json) -> ObservedQueue:
    """Decode a Queue with its status. Raises MalformedObjectError."""
    queue = queues.decode(obj)
    return ObservedQueue(meta=queue.meta, queue=queue, report=status_views.queue(obj))


def decode_meter(obj: Json) -> ObservedMeter:
    """Decode a Meter with its status. Raises MalformedObjectError."""
    outside = Reader(obj).child("status").children("outsideQueues")
    meter = meters.decode(obj)
    devices = {one.text("deviceClass"): one.integer("devices") for one in outside}
    return ObservedMeter(meta=meter.meta, meter=meter, outside=devices)


def decode_shape(obj: Json) -> ObservedShape:
    """Decode a NodeShape with its status. Raises MalformedObjectError."""
    shape, written = node_shapes.decode(obj), [*Reader(obj).child("status").children("conditions")]
    return ObservedShape(
        meta=shape.meta,
        shape=shape,
        conditions={one.type: one for one in map(status_views.condition, written)},
        up_since=next((one.time("lastTransitionTime") for one in written if one.text("type") == "Up"), None),
    )


def decode_gang(obj: Json) -> ObservedGang:
    """Decode a Gang with its status. Raises MalformedObjectError."""
    gang = gangs.decode(obj)
    conditions = Reader(obj).child("status").children("conditions")
    since = {one.text("type"): one.time("lastTransitionTime") for one in conditions if one.text("status") == "True"}
    return ObservedGang(
        meta=gang.meta,
        report=status_views.gang(obj),
        held_since=Reader(obj).child("status").child("hold").time("since"),
        admitted_since=since.get("Admitted"),
        running_since=since.get("Running"),
        runtime=gang.runtime,
        min_count=gang.min_count,
    )
