"""Reader of traces: one JSON object per line, or CSV with a line of headings; problems are reported by line."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import msgspec

from admission.api import traces
from admission.api.traces import Arrival, Row
from admission.cli.manifest_reader import BadInputError
from admission.errors import FixError, Problem
from admission.simulation.replay import cluster
from admission.simulation.replay.cluster import ReplayCluster

MOST_SHOWN = 20
"""The most problems of a trace that are reported one by one."""


def read(path: str) -> tuple[Arrival, ...]:
    """Return the jobs of a trace. Raises BadInputError with all problems, or FixError."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise FixError(f"--arrivals {path}: cannot be read: {error}") from error
    broken: list[tuple[int, Problem]] = []
    rows = _csv(text, broken) if path.endswith(".csv") else _lines(text, broken)
    trace = traces.decode(rows)
    _refuse(path, sorted([*broken, *trace.problems], key=lambda one: one[0]))
    if not trace.arrivals:
        raise FixError(f"--arrivals {path}: has no jobs; docs/simulation.md says how one is written")
    return trace.arrivals


def check(path: str, arrivals: tuple[Arrival, ...], replayed: ReplayCluster) -> None:
    """Refuse a trace that requests what the cluster does not have. Raises BadInputError."""
    _refuse(path, cluster.name_problems(replayed, arrivals))


def _refuse(path: str, found: list[tuple[int, Problem]]) -> None:
    problems = [f"{path}:{line}: {fault}" for line, fault in found[:MOST_SHOWN]]
    if len(found) > MOST_SHOWN:
        problems.append(f"{path}: and {len(found) - MOST_SHOWN} more")
    if problems:
        raise BadInputError(problems)


def _lines(text: str, broken: list[tuple[int, Problem]]) -> Iterator[Row]:
    """Yield the objects of a file of JSON lines, skipping empty lines."""
    decoder = msgspec.json.Decoder()
    # Not splitlines(): JSON strings may contain Unicode's other line separators.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield Row(number, decoder.decode(line))
            except (msgspec.DecodeError, RecursionError) as error:
                broken.append((number, Problem(".", f"is no JSON: {error}")))


def _csv(text: str, broken: list[tuple[int, Problem]]) -> Iterator[Row]:
    """Yield the rows of a table up to the first invalid one."""
    reader = csv.DictReader(io.StringIO(text), restkey="(cells without a heading)", restval="")
    try:
        headings = reader.fieldnames or ()
        twice = dict.fromkeys(name for name in headings if name and headings.count(name) > 1)
        broken += ((1, Problem(name, "is the heading of more than one column")) for name in twice)
        for columns in reader:
            given = {str(name): cell if isinstance(cell, str) else ",".join(cell) for name, cell in columns.items()}
            if any(given.values()):
                yield Row(reader.line_num, traces.from_columns(given))
    except csv.Error as error:
        broken.append((reader.line_num, Problem(".", f"is no line of a table: {error}")))
