"""`muster lint`: finds problems of manifests without a cluster."""

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

import admission
from admission.cli import apps, manifest_reader, terminal
from admission.cli.manifest_reader import Manifest
from admission.dra import compatibility
from admission.dra.compatibility import Release
from admission.simulation import lint as simulation_lint
from admission.simulation.lint import Code, Remark, Severity

app = apps.single()

CLEAN, WARNED, WRONG = 0, 3, 4

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

EPILOG = apps.epilog(
    (
        "muster lint config/examples jobs.yaml",
        "kubectl get nodes,resourceslices,deviceclasses -o yaml | muster lint - team/",
        "muster lint team/ --format json | jq '.remarks[] | select(.severity == \"error\")'",
        "muster lint team/ --format sarif > lint.sarif",
    ),
    "With nodes, slices, classes, queues and policies in the input, what never fits and what is refused is told too.",
    "Exit codes: 0 nothing is wrong, 3 there are warnings, 4 there are errors, 2 the input cannot be read.",
)


class Format(StrEnum):
    """The format of the output."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


@app.command(epilog=EPILOG)
def lint(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Files, folders, or - for standard input.")],
    *,
    output: Annotated[Format, typer.Option("--format", "-o", help="Lines, one JSON object, or SARIF.")] = Format.TEXT,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="For objects that name none.")] = "default",
    profile: Annotated[Release, typer.Option(help="The Kubernetes that the manifests are for.")] = Release.V1_37,
) -> None:
    """Find what is wrong with manifests: CEL traps, what would be refused, what never fits. Needs no cluster.

    Reads claims, claim templates, classes, Jobs, pods and Muster's objects, and corrects selectors where it can.
    """
    manifests = manifest_reader.read(paths)
    linted = asyncio.run(
        simulation_lint.lint(
            [one.body for one in manifests], namespace=namespace, profile=compatibility.profile(profile)
        )
    )

    for text in linted.notes:
        terminal.note(text)
    match output:
        case Format.JSON:
            terminal.as_json(as_json(linted.remarks, manifests))
        case Format.SARIF:
            terminal.as_json(as_sarif(linted.remarks, manifests))
        case Format.TEXT:
            show(linted.remarks, manifests)
    raise typer.Exit(exit_code(linted.remarks))


def exit_code(remarks: Sequence[Remark]) -> int:
    """Return 0, 3 or 4, by the worst of the remarks."""
    severities = {remark.severity for remark in remarks}
    if Severity.ERROR in severities:
        return WRONG
    return WARNED if severities else CLEAN


def show(remarks: Sequence[Remark], manifests: Sequence[Manifest]) -> None:
    """Print a line for each remark, and below it the correction."""
    for remark in remarks:
        manifest = manifests[remark.index]
        place = manifest.place(remark.field)
        terminal.say(f"{place}: {remark.severity}: {manifest.label}: {remark.field}: {remark.message} [{remark.code}]")
        if remark.instead:
            terminal.say(f"    instead: {remark.instead}")
    counts = _counts(remarks)
    terminal.say(f"{len(manifests)} objects, {counts['errors']} errors, {counts['warnings']} warnings")


def as_json(remarks: Sequence[Remark], manifests: Sequence[Manifest]) -> dict[str, Any]:
    """Return the documented JSON (docs/commands.md)."""
    return {
        "remarks": [_remark(remark, manifests[remark.index]) for remark in remarks],
        "summary": _summary(remarks, manifests),
    }


def as_sarif(remarks: Sequence[Remark], manifests: Sequence[Manifest]) -> dict[str, Any]:
    """Return a SARIF 2.1.0 log, which code hosts show beside the lines."""
    driver = {
        "name": "muster lint",
        "version": admission.__version__,
        "rules": [{"id": str(code)} for code in Code],
    }
    results = [_result(remark, manifests[remark.index]) for remark in remarks]
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _summary(remarks: Sequence[Remark], manifests: Sequence[Manifest]) -> dict[str, int]:
    return {"objects": len(manifests), **_counts(remarks)}


def _counts(remarks: Sequence[Remark]) -> dict[str, int]:
    errors = sum(remark.severity is Severity.ERROR for remark in remarks)
    return {"errors": errors, "warnings": len(remarks) - errors}


def _remark(remark: Remark, manifest: Manifest) -> dict[str, Any]:
    file, line = _place(remark, manifest)
    namespace, _, name = manifest.name.rpartition("/")
    return {
        "file": file,
        "line": line,
        "severity": remark.severity,
        "code": remark.code,
        "object": {"kind": manifest.body["kind"], "namespace": namespace or None, "name": name},
        "field": remark.field,
        "message": remark.message,
        "instead": remark.instead or None,
    }


def _result(remark: Remark, manifest: Manifest) -> dict[str, Any]:
    file, line = _place(remark, manifest)
    text = f"{manifest.label}: {remark.field}: {remark.message}"
    if remark.instead:
        text += f"; instead: {remark.instead}"
    location = {"artifactLocation": {"uri": file}, **({"region": {"startLine": line}} if line else {})}
    return {
        "ruleId": remark.code,
        "level": remark.severity,
        "message": {"text": text},
        "locations": [{"physicalLocation": location}],
    }


def _place(remark: Remark, manifest: Manifest) -> tuple[str, int | None]:
    file, _, line = manifest.place(remark.field).rpartition(":")
    return (file, int(line)) if file and line.isdigit() else (manifest.source.name, None)
