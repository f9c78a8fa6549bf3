"""`muster gang`: the gangs of a cluster and their phases."""

from typing import Annotated, Any

import typer

from admission.api.muster import gang_references, status_views
from admission.api.muster.gangs import GangReport, Phase
from admission.api.values.references import EVERYWHERE
from admission.cli import apps, cluster_options, terminal
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.terminal import Format
from admission.kube.cache import watched_resources

app = apps.group()

EPILOG = apps.epilog(
    (
        "muster gang list",
        "muster gang list --namespace team-a --queue research --format json",
    ),
    "Exit codes: 0 done, 1 the cluster does not answer, 2 it cannot be reached as told.",
)

_ORDER = {phase: at for at, phase in enumerate((Phase.RUNNING, Phase.ADMITTED, Phase.RESERVED, Phase.PENDING))}


@app.callback()
def _group() -> None:
    """Gangs: who waits, who runs, and where."""


@app.command("list", epilog=EPILOG)
def listed(
    *,
    output: Annotated[Format, typer.Option("--format", "-o", help="A table, or one JSON object.")] = Format.TEXT,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Only this one; by default all.")] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", help="Only of this queue.")] = "",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Show every gang: its queue, how far it has come, what it is charged, and where it runs or why it waits."""

    async def fetch(cluster: Cluster) -> list[GangReport]:
        return await reports(cluster, namespace)

    found = cluster_options.query(fetch, kubeconfig=kubeconfig, context=context)
    chosen = [report for report in found if not queue or report.queue == queue]
    if output is Format.JSON:
        terminal.as_json({"gangs": [as_json(report) for report in chosen]})
    else:
        show(chosen)


async def reports(cluster: Cluster, namespace: str = "") -> list[GangReport]:
    """Return all gangs: running ones first, waiting ones last, in their order. Only these gangs are named."""
    objects = await cluster.list_objects(watched_resources.GANGS, namespace)
    reported = [status_views.gang(obj) for obj in objects]
    keys = {obj["metadata"].get("uid", ""): report.key for obj, report in zip(objects, reported, strict=True)}
    found = [gang_references.for_reader(gang_references.resolved(one, keys), EVERYWHERE) for one in reported]
    last = len(_ORDER)
    return sorted(found, key=lambda gang: (_ORDER.get(gang.phase, last), gang.queue, gang.position or 0, gang.key))


def show(found: list[GangReport]) -> None:
    """Print the table."""
    headings = ("gang", "queue", "phase", "pods", "charges", "where, or why not")
    terminal.table("Gangs", headings, map(_row, found))


def as_json(report: GangReport) -> dict[str, Any]:
    """Return one gang as documented JSON (docs/commands.md)."""
    hold = report.hold
    return {
        "namespace": report.namespace,
        "name": report.name,
        "queue": report.queue,
        "phase": report.phase,
        "size": report.size,
        "pods": report.pods,
        "expected": report.expected,
        "position": report.position,
        "reason": hold.reason if hold else None,
        "message": hold.message if hold else "",
        "details": dict(hold.details) if hold else {},
        "placement": report.placement or None,
        "placementReason": report.placement_reason,
        "notSimulated": list(report.not_simulated),
        "topology": terminal.topology(report.topology),
        "plan": terminal.plan(report.plan),
        "charges": terminal.amounts(report.charges),
        "evictions": report.evictions,
        "evicted": terminal.evicted(report.evicted),
        "startEstimate": terminal.moment(report.start_estimate),
        "startReason": report.start_reason,
    }


def _row(report: GangReport) -> tuple[object, ...]:
    pods = f"{report.pods}/{report.size}"
    return (report.key, report.queue, report.phase, pods, terminal.charge(report.charges), _location_or_reason(report))


def _location_or_reason(report: GangReport) -> str:
    """Return where the gang runs, or the short reason of its hold; `muster why` has the whole reason."""
    if report.hold is None:
        return terminal.nodes_of(report.plan)
    return f"{report.hold.reason}: {report.hold.message.split('; ')[0]}"
