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
    except OSError as error:
        raise FixError(f"--arrivals {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FixError(f"--arrivals {path}: is no text in UTF-8: {error.reason} at byte {error.start}") from error
    problems: list[tuple[int, Problem]] = []
    rows = _csv(text, problems) if path.endswith(".csv") else _lines(text, problems)
    trace = traces.decode(rows)
    _refuse(path, sorted([*problems, *trace.problems], key=lambda one: one[0]))
    if not trace.arrivals:
        raise FixError(f"--arrivals {path}: has no jobs; docs/simulation.md says how one is written")
    return trace.arrivals


def check(path: str, arrivals: tuple[Arrival, ...], replay_cluster: ReplayCluster) -> None:
    """Refuse a trace that requests what the cluster does not have. Raises BadInputError."""
    _refuse(path, cluster.name_problems(replay_cluster, arrivals))


def _refuse(path: str, found: list[tuple[int, Problem]]) -> None:
    lines = [f"{path}:{line}: {problem}" for line, problem in found[:MOST_SHOWN]]
    if len(found) > MOST_SHOWN:
        lines.append(f"{path}: and {len(found) - MOST_SHOWN} more")
    if lines:
        raise BadInputError(lines)


def _lines(text: str, problems: list[tuple[int, Problem]]) -> Iterator[Row]:
    """Yield the objects of a file of JSON lines, skipping empty lines."""
    decoder = msgspec.json.Decoder()
    # Not splitlines(): JSON strings may contain Unicode's other line separators.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield Row(number, decoder.decode(line))
            except (msgspec.DecodeError, RecursionError) as error:
                problems.append((number, Problem(".", f"is no JSON: {error}")))


def _csv(text: str, problems: list[tuple[int, Problem]]) -> Iterator[Row]:
    """Yield the rows of a table up to the first invalid one."""
    reader = csv.DictReader(io.StringIO(text), restkey="(cells without a heading)", restval="")
    try:
        headings = reader.fieldnames or ()
        duplicates = dict.fromkeys(name for name in headings if name and headings.count(name) > 1)
        problems += ((1, Problem(name, "is the heading of more than one column")) for name in duplicates)
        for columns in reader:
            cells = {str(name): cell if isinstance(cell, str) else ",".join(cell) for name, cell in columns.items()}
            if any(cells.values()):
                yield Row(reader.line_num, traces.from_columns(cells))
    except csv.Error as error:
        problems.append((reader.line_num, Problem(".", f"is no line of a table: {error}")))
