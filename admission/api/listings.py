"""Pods and Events as `kubectl get` lists them, for people who look at a gang.

Pods are read as a Table (meta.k8s.io/v1), whose cells the API server fills: a row has a hundredth of the pod, no
environment and no command, and says of its state what kubectl says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from admission.api.values.decoding import Json, Reader


class PodRow(NamedTuple):
    """A pod. ready: as `1/2`; status: its phase, or the reason why it is in it; node: "" while it has none."""

    name: str
    ready: str
    status: str
    restarts: str
    age: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodList:
    """Pods. complete: False if there are more than were asked for."""

    rows: Sequence[PodRow] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectEvent:
    """An Event. at: when it was last seen; count: how often; kind and name: of the object that it is about."""

    at: datetime | None
    type: str
    reason: str
    kind: str
    name: str
    count: int
    source: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventList:
    """Events. complete: False if there are more than were asked for."""

    events: Sequence[ObjectEvent] = ()
    complete: bool = True


_COLUMNS = PodRow(name="Name", ready="Ready", status="Status", restarts="Restarts", age="Age", node="Node")
_NO_NODE = "<none>"


def decode_pods(obj: Json) -> PodList:
    """Decode a Table of pods; columns that it lacks are empty, and it may have others."""
    reader = Reader(obj)
    columns = [one.text("name") for one in reader.children("columnDefinitions")]
    places = [columns.index(name) if name in columns else None for name in _COLUMNS]
    rows = [PodRow(*(_cell(one.raw("cells"), place) for place in places)) for one in reader.children("rows")]
    return PodList(rows=rows, complete=not reader.child("metadata").text("continue"))


def _cell(cells: Any, place: int | None) -> str:
    if place is None or not isinstance(cells, list) or place >= len(cells):
        return ""
    text = str(cells[place])
    return "" if text == _NO_NODE else text


def decode_events(obj: Json) -> EventList:
    """Decode a list of Events (v1), which have their time in one of several fields."""
    reader = Reader(obj)
    return EventList(
        events=[_event(one) for one in reader.children("items")],
        complete=not reader.child("metadata").text("continue"),
    )


def _event(reader: Reader) -> ObjectEvent:
    series, about = reader.child("series"), reader.child("involvedObject")
    return ObjectEvent(
        at=series.time("lastObservedTime")
        or reader.time("lastTimestamp")
        or reader.time("eventTime")
        or reader.time("firstTimestamp")
        or reader.child("metadata").time("creationTimestamp"),
        type=reader.text("type"),
        reason=reader.text("reason"),
        kind=about.text("kind"),
        name=about.text("name"),
        count=series.integer("count") or reader.integer("count") or 1,
        source=reader.child("source").text("component") or reader.text("reportingComponent"),
        message=reader.text("message"),
    )
