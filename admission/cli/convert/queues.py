"""`muster convert --from` a queueing system: Queues and Meters in place of another queueing system's objects."""

import sys
from collections.abc import Sequence
from enum import StrEnum

import typer

from admission.cli import manifest_reader
from admission.cli.convert import yaml_editor
from admission.conversion.findings import Level
from admission.conversion.queues import kueue, resource_quotas, volcano


class Origin(StrEnum):
    """The system whose objects are converted, or the public trace."""

    KUEUE = "kueue"
    VOLCANO = "volcano"
    RESOURCE_QUOTA = "resourcequota"
    OPENB = "openb"


_CONVERSIONS = {
    Origin.KUEUE: kueue.convert,
    Origin.VOLCANO: volcano.convert,
    Origin.RESOURCE_QUOTA: resource_quotas.convert,
}


def convert(paths: Sequence[str], origin: Origin) -> bool:
    """Print Muster's objects, and on the standard error what to look at. Returns whether something has no counterpart.

    Raises BadInputError.
    """
    manifests = manifest_reader.read(paths)
    converted = _CONVERSIONS[origin]([one.body for one in manifests])
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
