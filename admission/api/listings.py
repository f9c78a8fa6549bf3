"""Pods and Events as `kubectl get` lists them, for people who look at a gang.

Pods are read as a Table (meta.k8s.io/v1), whose cells the API server fills: a row has a hundredth of the pod, no
environment and no command, and says of its state what kubectl says.

Both lists have thousands of items and are read again every few seconds while somebody looks, so they are decoded as a
whole (msgspec), in a quarter of the time that a `Reader` of each item takes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from admission.api.values import typed_json
from admission.api.values.decoding import Json
from admission.errors import MalformedObjectError, Problem


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


class _ListMeta(msgspec.Struct, frozen=True, rename={"token": "continue"}):
    token: str = ""


class _Column(msgspec.Struct):
    name: str


class _Row(msgspec.Struct):
    cells: list[Any]


class _Table(msgspec.Struct, rename="camel"):
    metadata: _ListMeta = _ListMeta()
    column_definitions: list[_Column] = []
    rows: list[_Row] | None = None


class _Named(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""


class _Source(msgspec.Struct, frozen=True):
    component: str = ""


class _Series(msgspec.Struct, rename="camel"):
    count: int = 0
    last_observed_time: datetime | None = None


class _Created(msgspec.Struct, frozen=True, rename="camel"):
    creation_timestamp: datetime | None = None


class _Event(msgspec.Struct, rename="camel"):
    metadata: _Created = _Created()
    involved_object: _Named = _Named()
    type: str = ""
    reason: str = ""
    message: str = ""
    source: _Source = _Source()
    reporting_component: str = ""
    count: int | None = None
    series: _Series | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    first_timestamp: datetime | None = None


class _Events(msgspec.Struct):
    metadata: _ListMeta = _ListMeta()
    items: list[_Event] | None = None


T = TypeVar("T")

_to_table, _to_events = typed_json.converter(_Table), typed_json.converter(_Events)


def decode_pods(obj: Json) -> PodList:
    """Decode a Table of pods; columns that it lacks are empty, and it may have others.

    Raises MalformedObjectError if it is none.
    """
    table = _converted(obj, _to_table, "Table")
    columns = [one.name for one in table.column_definitions]
    rows = table.rows or []
    cells = [_cells(rows, columns.index(name)) if name in columns else [""] * len(rows) for name in _COLUMNS]
    return PodList(rows=[PodRow(*row) for row in zip(*cells, strict=True)], complete=not table.metadata.token)


def _cells(rows: Sequence[_Row], place: int) -> list[str]:
    """Return the cells of a column; those that a row lacks are empty."""
    found = (str(row.cells[place]) if place < len(row.cells) else "" for row in rows)
    return ["" if text == _NO_NODE else text for text in found]


def decode_events(obj: Json) -> EventList:
    """Decode a list of Events (v1), which have their time in one of several fields.

    Raises MalformedObjectError if it is none.
    """
    found = _converted(obj, _to_events, "EventList")
    return EventList(events=[_event(one) for one in found.items or ()], complete=not found.metadata.token)


def _event(one: _Event) -> ObjectEvent:
    series, about = one.series or _Series(), one.involved_object
    return ObjectEvent(
        at=series.last_observed_time
        or one.last_timestamp
        or one.event_time
        or one.first_timestamp
        or one.metadata.creation_timestamp,
        type=one.type,
        reason=one.reason,
        kind=about.kind,
        name=about.name,
        count=series.count or one.count or 1,
        source=one.source.component or one.reporting_component,
        message=one.message,
    )


def _converted(obj: Json, convert: Callable[[Json], T], name: str) -> T:
    try:
        return convert(obj)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        raise MalformedObjectError(name, "of the API server", (Problem(place.strip(".`") or ".", problem),)) from error
