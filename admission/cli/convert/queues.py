"""`muster convert --from kueue`: Queues and Meters in place of another queueing system's objects."""

import sys
from collections.abc import Sequence
from enum import StrEnum

import typer

from admission.cli import manifest_reader
from admission.cli.convert import yaml_editor
from admission.conversion import kueue
from admission.conversion.findings import Level


class Origin(StrEnum):
    """The queueing system whose objects are converted."""

    KUEUE = "kueue"


def convert(paths: Sequence[str]) -> bool:
    """Print Muster's objects, and on the standard error what to look at. Returns whether something has no counterpart.

    Raises BadInputError.
    """
    manifests = manifest_reader.read(paths)
    converted = kueue.convert([one.body for one in manifests])
    typer.echo("---\n".join(map(yaml_editor.dump, converted.objects)), nl=False)
    sys.stdout.flush()
    counts = dict.fromkeys(Level, 0)
    for manifest, findings in zip(manifests, converted.findings, strict=True):
        for finding in findings.found:
            counts[finding.level] += 1
            if finding.level is not Level.CHANGED:
                place = manifest.place(finding.field)
                line = f"{place}: {finding.level}: {manifest.label}: {finding.field}: {finding.message}"
                typer.echo(line, err=True)
    left = counts[Level.LEFT]
    summary = f"{len(converted.objects)} objects written, {counts[Level.CHECK]} things to check, {left} left"
    typer.echo(summary, err=True)
    return left > 0
