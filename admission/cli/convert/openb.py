"""`muster convert --from openb`: a list of Alibaba's GPU trace of 2023 as a cluster, or as jobs to be played."""

import json
import sys
from collections.abc import Sequence
from itertools import islice

import typer

from admission.api import traces
from admission.api.traces import Row
from admission.cli import manifest_reader
from admission.cli.manifest_reader import BadInputError
from admission.conversion import openb
from admission.errors import FixError, Problem

MOST_ROWS = 1_000_000
"""The most nodes or pods of a list."""

_COLUMNS = {"nodes": openb.NODE_COLUMNS, "pods": openb.POD_COLUMNS}


def convert(paths: Sequence[str]) -> None:
    """Print the cluster of a node list as JSON, or the jobs of a pod list as JSON lines.

    The headings say which of the two it is. Raises BadInputError and FixError.
    """
    sources = list(manifest_reader.sources(paths))
    if len(sources) != 1:
        raise FixError("--from openb converts one list: a node list into a cluster, or a pod list into jobs")
    (source,) = sources
    problems: list[tuple[int, Problem]] = []
    rows = list(islice(traces.csv_rows(source.text, problems, is_full=True), MOST_ROWS + 1))
    if len(rows) > MOST_ROWS:
        raise FixError(f"{source.name}: has more than {MOST_ROWS:,} rows; convert the first ones, as of `head`")
    manifest_reader.refuse_lines(source.name, problems)
    if not rows:
        raise FixError(f"{source.name}: has no rows below a line of headings")
    decoder = openb.Decoder()
    lines, summary = _cluster(decoder, rows) if _is_of_nodes(source.name, rows) else _jobs(decoder, rows)
    manifest_reader.refuse_lines(source.name, decoder.problems)
    sys.stdout.writelines(lines)
    sys.stdout.flush()
    typer.echo(summary, err=True)


def _is_of_nodes(name: str, rows: Sequence[Row]) -> bool:
    """Whether a list has nodes; False if it has pods. Raises BadInputError if it has neither."""
    headings = rows[0].body
    missing = {kind: [column for column in columns if column not in headings] for kind, columns in _COLUMNS.items()}
    if not all(missing.values()):
        return not missing["nodes"]
    known = {kind: f"the columns of {kind} are {','.join(columns)}" for kind, columns in _COLUMNS.items()}
    if (set(openb.NODE_COLUMNS) ^ set(openb.POD_COLUMNS)).isdisjoint(headings):
        both = "; ".join(known.values())
        raise BadInputError([f"{name}:1: is not the line of headings of either list, with commas between; {both}"])
    nearest = min(missing, key=lambda kind: len(missing[kind]) / len(_COLUMNS[kind]))
    raise BadInputError([f"{name}:1: {column}: is no heading; {known[nearest]}" for column in missing[nearest]])


def _cluster(decoder: openb.Decoder, rows: Sequence[Row]) -> tuple[list[str], str]:
    """Return a List of manifests, one on each line, and what was written. JSON is read much faster than YAML."""
    nodes = list(decoder.nodes(rows))
    items = [json.dumps(manifest) for manifest in openb.cluster(nodes)]
    lines = ['{"apiVersion": "v1", "kind": "List", "items": [\n', ",\n".join(items), "\n]}\n"]
    return lines, f"{len(nodes)} nodes with {sum(node.gpus for node in nodes)} GPUs written"


def _jobs(decoder: openb.Decoder, rows: Sequence[Row]) -> tuple[list[str], str]:
    """Return jobs, one on each line, and what was written."""
    pods = list(decoder.pods(rows))
    found = [f"{json.dumps(job)}\n" for pod in pods if (job := openb.job(pod)) is not None]
    left = len(pods) - len(found)
    note = f"; {left} pods were never scheduled and are left out: how long they would run is not known"
    return found, f"{len(found)} jobs written{note if left else ''}"
