"""Traces: the jobs that arrive in a cluster over time, for `muster simulate --arrivals`.

A row of a trace is one job: its arrival, its queue, its number of pods, the requests of each pod, and its runtime.
docs/simulation.md describes the fields.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from admission.api.kubernetes import claims, nodes
from admission.api.kubernetes.claims import ClaimSpec
from admission.api.kubernetes.nodes import Resources
from admission.api.validation import claims as rules
from admission.api.validation.pods import placement
from admission.api.values import durations, formats, selectors
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import QueueName
from admission.api.values.selectors import Toleration
from admission.errors import Problem

MOST_PODS = 10_000
"""The most pods of one job, as of a gang."""

NOTHING = "none"
"""The value of `declared` for a job that declares no runtime."""

LONGEST = timedelta(days=3650)
"""The latest arrival and the longest runtime of a job."""

OF_PODS = ("claims", "requests", "tolerations", "topology")
FIELDS = ("name", "queue", "arrival", "runtime", "declared", "pods", "priority", *OF_PODS)
COLUMNS = ("name", "queue", "arrival", "runtime", "declared", "pods", "priority", "topology", "cpu", "memory")
CLAIM_COLUMNS = ("class", "count", "selector")
_BEYOND = "(cells without a heading)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodRequests:
    """The requests of each pod of a job: its own claims, and resources of its node. Jobs with equal ones share it."""

    claims: tuple[ClaimSpec, ...] = ()
    requests: Resources = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""
    """The label of the topology domain that all pods share; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One job of a trace. at: since the trace's start. runtime: from when all of its pods run. line: of its row.

    declared: the runtime that it declares; None if it declares none.
    """

    name: str
    queue: QueueName
    at: timedelta
    runtime: timedelta
    declared: timedelta | None
    pods: int = 1
    priority: int = 0
    pod_requests: PodRequests = field(default_factory=PodRequests)
    line: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a trace with the number of its line, from 1."""

    line: int
    body: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A decoded trace: its jobs in the order of their arrival, and its problems with their lines."""

    arrivals: tuple[Arrival, ...] = ()
    problems: tuple[tuple[int, Problem], ...] = ()


def decode(rows: Iterable[Row]) -> Trace:
    """Decode the rows of a trace. Absolute times count from the earliest one."""
    decoder = _RowDecoder()
    decoded = [row_ for row in rows if (row_ := decoder.row(row)) is not None]
    first = min((row_.moment for row_ in decoded if row_.moment is not None), default=None)
    arrivals: list[Arrival] = []
    for row_ in decoded:
        if first is not None and row_.moment is None:
            decoder.problem(
                row_.line, "arrival", "is no time of day as others of the file are; write all of them alike"
            )
            continue
        at = row_.moment - first if row_.moment is not None and first is not None else row_.offset
        if at > LONGEST:
            decoder.problem(row_.line, "arrival", f"is more than {LONGEST.days} days after the first one")
        arrivals.append(Arrival(at=at, line=row_.line, **row_.fields))
    return Trace(
        arrivals=tuple(sorted(arrivals, key=lambda row_: (row_.at, row_.name))), problems=tuple(decoder.problems)
    )


def csv_rows(text: str, problems: list[tuple[int, Problem]], *, is_full: bool = False) -> Iterator[Row]:
    """Yield the rows of a table in CSV, each a mapping of headings to cells, up to the first invalid one.

    problems: gets those of the table. Rows without any cell are skipped. is_full: whether each other row has to have a
    cell of text below each heading, and no more.
    """
    reader = csv.DictReader(io.StringIO(text), restkey=_BEYOND)
    try:
        headings = reader.fieldnames or ()
        duplicates = dict.fromkeys(name for name in headings if name and headings.count(name) > 1)
        problems += ((1, Problem(name, "is the heading of more than one column")) for name in duplicates)
        for columns in reader:
            cells = {str(name): _text(cell) for name, cell in columns.items()}
            if any(cells.values()):
                problems += ((reader.line_num, one) for one in _misfits(columns, cells) if is_full)
                yield Row(reader.line_num, cells)
    except csv.Error as error:
        problems.append((reader.line_num, Problem(".", f"is no line of a table: {error}")))


def _text(cell: str | list[str] | None) -> str:
    """Return the text of a cell as `csv` reads it; nothing if the row lacks it, all in one if none has a heading."""
    return cell if isinstance(cell, str) else ",".join(cell or ())


def _misfits(columns: Mapping[str, Any], cells: Mapping[str, str]) -> Iterator[Problem]:
    """Yield what is wrong with the number of cells in a row of CSV, and with cells that are no text.

    columns: the row as `csv` reads it, None for each cell that it lacks. cells: the texts of these.
    """
    headings = [name for name in columns if name != _BEYOND]
    lacking = [name for name in headings if columns[name] is None]
    if lacking:
        read = f"the row ends after {len(headings) - len(lacking)} of {len(headings)} cells"
        yield Problem(lacking[0], f"has no cell, as {read}; complete it, or get the file again if it was cut off")
    if _BEYOND in columns:
        count = len(headings) + len(columns[_BEYOND])
        message = "has no heading; take it out, or put a cell that has commas in quotation marks"
        yield Problem(f"cell {len(headings) + 1} of {count}", message)
    for name, cell in cells.items():
        if "\0" in cell:
            yield Problem(name, "has a NUL, which no text has; get the file again, or take it out")


def from_columns(columns: Mapping[str, str]) -> dict[str, Any]:
    """Return the row of a line of CSV. Empty cells are absent; unknown columns are kept, for the decoder to report."""
    cells = {name: text for name, text in columns.items() if text}
    row: dict[str, Any] = {name: text for name, text in cells.items() if name not in (*COLUMNS, *CLAIM_COLUMNS)}
    row |= {
        name: _number(cells[name]) for name in ("arrival", "runtime", "declared", "pods", "priority") if name in cells
    }
    row |= {name: cells[name] for name in ("name", "queue", "topology") if name in cells}
    requests = {name: cells[name] for name in ("cpu", "memory") if name in cells}
    claim: dict[str, Any] = {"class": cells["class"]} if "class" in cells else {}
    claim |= {"count": _number(cells["count"])} if "count" in cells else {}
    claim |= {"selectors": [cells["selector"]]} if "selector" in cells else {}
    return row | ({"requests": requests} if requests else {}) | ({"claims": [claim]} if claim else {})


def _number(text: str) -> int | float | str:
    """Return the number in a cell; its text if it is no number, for the reader to report."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _DecodedRow:
    """A decoded row. moment: its arrival as an absolute time, if given so; offset: else, since the trace's start."""

    line: int
    moment: datetime | None
    offset: timedelta
    fields: Mapping[str, Any]


class _RowDecoder:
    """The decoder of one trace's rows, which decodes equal pod requests once."""

    def __init__(self) -> None:
        self.problems: list[tuple[int, Problem]] = []
        self._known_requests: dict[str, PodRequests] = {}
        self._names: dict[str, int] = {}

    def problem(self, line: int, name: str, message: str) -> None:
        self.problems.append((line, Problem(name, message)))

    def row(self, row: Row) -> _DecodedRow | None:
        """Return the decoded row; None, with its problems noted, if there are any."""
        reader = Reader(row.body)
        for name in reader.unknown(FIELDS):
            reader.problem(name, f"is no field of a trace; known are {', '.join(FIELDS)}")
        name = reader.text("name") or f"job-{row.line}"
        if name in self._names:
            reader.problem("name", f"{name!r} is the name of the job in line {self._names[name]}, too")
        self._names.setdefault(name, row.line)
        moment, offset = _arrival(reader)
        runtime = _runtime(reader, "runtime")
        fields = {
            "name": name,
            "queue": QueueName(reader.required("queue")),
            "runtime": runtime,
            "declared": _declared(reader, runtime),
            "pods": _pods(reader),
            "priority": reader.integer("priority"),
            "pod_requests": self._pod_requests(reader),
        }
        self.problems += [(row.line, problem) for problem in reader.problems]
        return None if reader.problems else _DecodedRow(line=row.line, moment=moment, offset=offset, fields=fields)

    def _pod_requests(self, reader: Reader) -> PodRequests:
        raw = [reader.raw(name) for name in OF_PODS]
        key = json.dumps(raw, default=repr)
        if key not in self._known_requests:
            pod_requests = PodRequests(
                claims=tuple(_claims(reader)),
                requests={"pods": 1, **_requests(reader)},
                tolerations=_tolerations(reader),
                topology=_topology(reader),
            )
            if reader.problems:
                return pod_requests
            self._known_requests[key] = pod_requests
        return self._known_requests[key]


def _arrival(reader: Reader) -> tuple[datetime | None, timedelta]:
    value = reader.raw("arrival")
    if value is None:
        reader.problem("arrival", "is required")
    elif isinstance(value, str) and "T" in value:
        moment = reader.time("arrival")
        if moment is not None and moment.tzinfo is None:
            reader.problem("arrival", f"{value!r} has no time zone; add Z or an offset such as +02:00")
            return None, timedelta()
        return moment, timedelta()
    return None, reader.parsed("arrival", _duration, timedelta())


def _runtime(reader: Reader, name: str) -> timedelta:
    if name not in reader:
        reader.problem(name, "is required")
        return LONGEST
    found = reader.parsed(name, _duration, LONGEST)
    if not found:
        reader.problem(name, "must be longer than nothing")
    return found


def _declared(reader: Reader, runtime: timedelta) -> timedelta | None:
    """Return the declared runtime of a job: the real one, unless the trace has another."""
    if "declared" not in reader:
        return runtime
    return None if reader.raw("declared") == NOTHING else _runtime(reader, "declared")


def _duration(text: str) -> timedelta:
    """Return a number of seconds, or a duration such as 1h30m."""
    try:
        found = timedelta(seconds=float(text))
    except ValueError:
        found = durations.parse(text)
    except OverflowError:
        found = LONGEST * 2
    if not timedelta() <= found <= LONGEST:
        raise ValueError(f"{text!r} is not between 0 and {LONGEST.days} days; write seconds, or a duration as 1h30m")
    return found


def _pods(reader: Reader) -> int:
    found = reader.integer("pods", 1)
    if not 1 <= found <= MOST_PODS:
        reader.problem("pods", f"is {found}, it must be from 1 to {MOST_PODS}")
    return found


def _requests(reader: Reader) -> Resources:
    found = nodes.decode_resources(reader, "requests")
    for name in (name for name, amount in found.items() if amount < 0):
        reader.problem(f"requests.{name}", "is less than nothing")
    return found


def _tolerations(reader: Reader) -> tuple[Toleration, ...]:
    placement.validate_tolerations(reader)
    return tuple(map(selectors.decode_toleration, reader.children("tolerations")))


def _topology(reader: Reader) -> str:
    label = reader.text("topology")
    problem = formats.key(label) if label else None
    if problem is not None:
        reader.problem("topology", problem)
    return label


def _claims(reader: Reader) -> Iterator[ClaimSpec]:
    for claim in reader.children("claims"):
        if "devices" in claim:
            spec = claim
        else:
            for name in claim.unknown(("class", "count", "selectors")):
                claim.problem(name, "is no field of a claim; known are class, count and selectors, or devices")
            spec = Reader(_spec(claim), claim.path)
        rules.validate(spec)
        for problem in spec.problems if spec is not claim else ():
            reader.problem(_short_field(problem.field), problem.message)
        yield claims.decode_spec(spec)


def _spec(claim: Reader) -> Json:
    """Return the ResourceClaimSpec of a short claim: `count` devices of a class."""
    count, selectors = claim.integer("count", 1), claim.texts("selectors")
    if count < 1:
        claim.problem("count", f"is {count}, it must be at least 1")
    exactly = {
        "deviceClassName": claim.required("class"),
        "allocationMode": claims.EXACT_COUNT,
        "count": max(count, 1),
        "selectors": [{"cel": {"expression": text}} for text in selectors],
    }
    return {"devices": {"requests": [{"name": "devices", "exactly": exactly}]}}


def _short_field(path: str) -> str:
    """Return the field of a short claim from which a field of the spec was made."""
    return (
        path.replace(".devices.requests[0].exactly", "")
        .replace("deviceClassName", "class")
        .replace(".cel.expression", "")
    )
