"""`muster gang`: the gangs of a cluster and their phases."""

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from admission.api.muster import gang_references, status_views
from admission.api.muster.gangs import GangReport, Phase
from admission.api.values.references import EVERYWHERE
from admission.cli import apps, cluster_options, list_output, terminal, watch_output
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.list_output import ListFormat, ListFormatOption, Listing, SelectorOption
from admission.cli.terminal import Overflow
from admission.cli.watch_output import WatchOption
from admission.kube.cache import watched_resources

app = apps.group()

EPILOG = apps.epilog(
    (
        "muster gang list",
        "muster gang list --watch --sort-by waiting",
        "muster gang list --namespace team-a --queue research --format json",
    ),
    "Exit codes: 0 done, 1 the cluster does not answer, 2 it cannot be reached as told.",
)

_ORDER = {phase: at for at, phase in enumerate((Phase.RUNNING, Phase.ADMITTED, Phase.RESERVED, Phase.PENDING))}

_HEADINGS = ("gang", "queue", "phase", "pods", "charges", "where, or why not")
_CSV_HEADINGS = (
    "namespace",
    "name",
    "queue",
    "phase",
    "position",
    "pods",
    "size",
    "charges",
    "nodes",
    "reason",
    "message",
)

_SPARE = ("charges", "pods", "queue")
"""The columns that a narrow terminal does without."""


class SortGangs(StrEnum):
    """The order of a list of gangs."""

    PHASE = "phase"
    NAME = "name"
    QUEUE = "queue"
    PRIORITY = "priority"
    SIZE = "size"
    WAITING = "waiting"


_LATEST = datetime.max.replace(tzinfo=UTC)
_SORT_KEYS: dict[SortGangs, Callable[[GangReport], Any]] = {
    SortGangs.PHASE: lambda _: 0,
    SortGangs.NAME: lambda report: report.key,
    SortGangs.QUEUE: lambda report: report.queue,
    SortGangs.PRIORITY: lambda report: -report.priority,
    SortGangs.SIZE: lambda report: -report.size,
    SortGangs.WAITING: lambda report: report.queued_since or _LATEST,
}
"""Sorting is stable: among equals the order of phases stays."""


@app.callback()
def _group() -> None:
    """Gangs: who waits, who runs, and where."""


@app.command("list", epilog=EPILOG)
def listed(
    *,
    again: WatchOption = False,
    output: ListFormatOption = ListFormat.TEXT,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Only this one; by default all.")] = "",
    everywhere: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="In all namespaces, whatever --namespace says.")
    ] = False,
    queue: Annotated[str, typer.Option("--queue", "-q", help="Only of this queue.")] = "",
    labels: SelectorOption = "",
    sort: Annotated[
        SortGangs,
        typer.Option("--sort-by", help="The highest priority, the largest or the longest wait comes first."),
    ] = SortGangs.PHASE,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Show every gang: its queue, how far it has come, what it is charged, and where it runs or why it waits."""

    async def fetch(cluster: Cluster) -> list[GangReport]:
        found = await reports(cluster, "" if everywhere else namespace, labels=labels)
        return sorted((one for one in found if not queue or one.queue == queue), key=_SORT_KEYS[sort])

    watch_output.poll_and_print(
        lambda: cluster_options.query(fetch, kubeconfig=kubeconfig, context=context),
        lambda found: list_output.write(_listing(found), output),
        again=again,
    )


async def reports(cluster: Cluster, namespace: str = "", *, labels: str = "") -> list[GangReport]:
    """Return all gangs: running ones first, waiting ones last, in their order. Only these gangs are named."""
    objects = await cluster.list_objects(watched_resources.GANGS, namespace, labels=labels)
    reported = [status_views.gang(obj) for obj in objects]
    keys = {obj["metadata"].get("uid", ""): report.key for obj, report in zip(objects, reported, strict=True)}
    found = [gang_references.for_reader(gang_references.resolved(one, keys), EVERYWHERE) for one in reported]
    last = len(_ORDER)
    return sorted(found, key=lambda gang: (_ORDER.get(gang.phase, last), gang.queue, gang.position or 0, gang.key))


def show(found: list[GangReport], overflow: Overflow = Overflow.CUT) -> None:
    """Print the table."""
    rows = [_row(report, whole=overflow is Overflow.WRAP) for report in found]
    terminal.table("Gangs", _HEADINGS, rows, spare=_SPARE, overflow=overflow)


def _listing(found: list[GangReport]) -> Listing:
    return Listing(
        show=lambda overflow: show(found, overflow),
        document=lambda: {"gangs": [as_json(report) for report in found]},
        names=(f"gang.muster.dev/{report.name}" for report in found),
        headings=_CSV_HEADINGS,
        rows=map(_csv_row, found),
    )


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


def _row(report: GangReport, *, whole: bool) -> tuple[object, ...]:
    pods, where = f"{report.pods}/{report.size}", _location_or_reason(report, whole=whole)
    return (report.key, report.queue, report.phase, pods, terminal.charge(report.charges), where)


def _location_or_reason(report: GangReport, *, whole: bool) -> str:
    """Return where the gang runs, or the reason of its hold, of which `muster why` has the numbers, too.

    whole: the reason in full.
    """
    if report.hold is None:
        return terminal.nodes_of(report.plan)
    return f"{report.hold.reason}: {report.hold.message if whole else report.hold.message.split('; ')[0]}"


def _csv_row(report: GangReport) -> tuple[object, ...]:
    charges = terminal.charge(report.charges) if report.charges else ""
    return (
        *(report.namespace, report.name, report.queue, report.phase, report.position, report.pods, report.size),
        *(charges, terminal.nodes_of(report.plan)),
        *((report.hold.reason, report.hold.message) if report.hold else ("", "")),
    )
