"""`muster convert`: manifests of earlier DRA APIs, written for `resource.k8s.io/v1`."""

import difflib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from admission.cli import apps, manifest_reader, terminal
from admission.cli.convert import files, openb, queues
from admission.cli.convert.files import File, Item
from admission.cli.convert.queues import Origin
from admission.cli.convert.yaml_text import Text
from admission.conversion import manifests
from admission.conversion.findings import Finding, Level
from admission.errors import FixError, RetryError

app = apps.single()

DONE, TO_CONVERT, UNCONVERTED = 0, 3, 4

EPILOG = apps.epilog(
    (
        "muster convert old.yaml > new.yaml",
        "muster convert --diff deploy/",
        "muster convert --in-place deploy/ && muster lint deploy/",
        "muster convert --check deploy/",
        "kubectl get resourceclaims -A -o yaml | muster convert -",
        "kubectl get clusterqueues,cohorts,localqueues -A -o yaml | muster convert --from kueue - > queues.yaml",
        "kubectl get resourcequotas -A -o yaml | muster convert --from resourcequota - > queues.yaml",
        "muster convert --from openb openb_pod_list_default.csv > jobs.jsonl",
    ),
    "What cannot be converted stays as it is, and is told with its line and the mend. Comments, quotes and order stay, "
    "too. docs/tasks/convert.md lists what is changed.",
    "Exit codes: 0 done, or nothing is to convert; 3 with --check: something is; 4 something is left to mend by hand, "
    "or has no counterpart; 2 the input cannot be read.",
)


class _Report(NamedTuple):
    """A finding of an object, and where it is."""

    file: File
    item: Item
    finding: Finding


@app.command(epilog=EPILOG)
def convert(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Files, folders, or - for standard input.")],
    *,
    check: Annotated[bool, typer.Option("--check", help="Write nothing: tell what is to convert.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Print the changes in place of the manifests.")] = False,
    in_place: Annotated[bool, typer.Option("--in-place", "-i", help="Write the changed files.")] = False,
    origin: Annotated[
        Origin | None,
        typer.Option(
            "--from",
            help="Print Queues and Meters for the objects of this system, or a cluster or jobs for a list of a trace.",
        ),
    ] = None,
) -> None:
    """Write manifests of earlier DRA APIs (v1alpha2 to v1beta2) for resource.k8s.io/v1. Needs no cluster."""
    if check + diff + in_place > 1:
        raise FixError("--check, --diff and --in-place: one at a time")
    if origin is not None:
        if check or diff or in_place:
            raise FixError("--from prints new objects: it goes without --check, --diff and --in-place")
        raise typer.Exit(_convert_from(paths, origin))
    if in_place and manifest_reader.STANDARD_INPUT in paths:
        raise FixError("--in-place: the standard input cannot be written; name a file")
    read = files.read(paths)
    reports = list(_convert(read))
    written = [file.text.written() for file in read]
    changed = [(file, text) for file, text in zip(read, written, strict=True) if text != file.source.text]

    if in_place:
        for file, text in changed:
            _write(Path(file.source.name), text)
    elif diff:
        for file, text in changed:
            sys.stdout.writelines(_diff(file, text))
    elif not check:
        sys.stdout.write(_stream(written))
    sys.stdout.flush()
    _report(reports, changed, is_all=check)
    is_left = any(one.finding.level is Level.LEFT for one in reports)
    raise typer.Exit(UNCONVERTED if is_left else TO_CONVERT if check and changed else DONE)


def _convert_from(paths: Sequence[str], origin: Origin) -> int:
    """Print new objects, or jobs; return the exit code."""
    if origin is Origin.OPENB:
        openb.convert(paths)
        return DONE
    return UNCONVERTED if queues.convert(paths, origin) else DONE


def _convert(read: Sequence[File]) -> Iterator[_Report]:
    """Convert all objects together, and yield what is found of each."""
    places = [(file, item) for file in read for item in file.items]
    conversions = manifests.convert([item.body for _, item in places])
    for (file, item), conversion in zip(places, conversions, strict=True):
        item.add(conversion.added, file)
        yield from (_Report(file, item, finding) for finding in conversion.findings)


def _report(reports: Sequence[_Report], changed: Sequence[tuple[File, str]], *, is_all: bool) -> None:
    """Print the findings to the standard error, but for changes that the output shows, unless it shows none."""
    counts = dict.fromkeys(Level, 0)
    for file, item, finding in reports:
        counts[finding.level] += 1
        if is_all or finding.level is not Level.CHANGED:
            place = file.place(item, finding.field)
            line = f"{place}: {finding.level}: {item.label}: {finding.field}: {finding.message}"
            terminal.say(line) if is_all else typer.echo(line, err=True)
    for file, _ in changed:
        if isinstance(file.text, Text) and file.text.rewritten:
            terminal.note(f"{file.source.name}: a document with aliases, or in a rare style, loses its comments")
    verb = "to convert" if is_all else "converted"
    left = f"{counts[Level.CHECK]} things to check, {counts[Level.LEFT]} left to mend by hand"
    summary = f"{len(changed)} files {verb}: {counts[Level.CHANGED]} changes, {left}"
    terminal.say(summary) if is_all else typer.echo(summary, err=True)


def _stream(texts: Sequence[str]) -> str:
    """Return files as one stream of documents."""
    found = ""
    for text in texts:
        if found and not text.startswith("---"):
            found += "---\n"
        found += text if text.endswith("\n") or not text else f"{text}\n"
    return found


def _diff(file: File, text: str) -> Iterator[str]:
    name = file.source.name
    before, after = file.source.text.splitlines(keepends=True), text.splitlines(keepends=True)
    for line in difflib.unified_diff(before, after, name, name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _write(path: Path, text: str) -> None:
    """Replace a file at once, so that it is never there by half. A link stays one."""
    target = path.resolve()
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", dir=target.parent, delete=False) as made:
            made.write(text)
        shutil.copymode(target, made.name)
        Path(made.name).replace(target)
    except OSError as error:
        raise RetryError(f"{path}: cannot be written: {error.strerror or error}") from error
