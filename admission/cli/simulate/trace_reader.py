"""Reader of traces: one JSON object per line, or CSV with a line of headings; problems are reported by line."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from admission.api import traces
from admission.api.traces import Arrival, Row
from admission.cli import manifest_reader
from admission.conversion import openb
from admission.errors import FixError, Problem
from admission.simulation.replay import cluster
from admission.simulation.replay.cluster import ReplayCluster


def read(path: str) -> tuple[Arrival, ...]:
    """Return the jobs of a trace. Raises BadInputError with all problems, or FixError."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise FixError(f"--arrivals {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FixError(f"--arrivals {path}: is no text in UTF-8: {error.reason} at byte {error.start}") from error
    problems: list[tuple[int, Problem]] = []
    rows = _csv(path, text, problems) if path.endswith(".csv") else _lines(text, problems)
    trace = traces.decode(rows)
    manifest_reader.refuse_lines(path, [*problems, *trace.problems])
    if not trace.arrivals:
        raise FixError(f"--arrivals {path}: has no jobs; docs/simulation.md says how one is written")
    return trace.arrivals


def check(path: str, arrivals: tuple[Arrival, ...], replay_cluster: ReplayCluster) -> None:
    """Refuse a trace that requests what the cluster does not have. Raises BadInputError."""
    manifest_reader.refuse_lines(path, cluster.name_problems(replay_cluster, arrivals))


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


def _csv(path: str, text: str, problems: list[tuple[int, Problem]]) -> Iterator[Row]:
    """Yield the rows of a table."""
    for row in traces.csv_rows(text, problems):
        if row.body.keys() >= set(openb.POD_COLUMNS):
            raise FixError(
                f"--arrivals {path}: is a pod list of Alibaba's GPU trace; `muster convert --from openb {path}` makes "
                "jobs of it"
            )
        yield Row(row.line, traces.from_columns(row.body))
