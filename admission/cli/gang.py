"""`muster gang`: the gangs of a cluster and their phases."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from admission.api.muster import gang_references, status_views
from admission.api.muster.gangs import GangReport, Phase
from admission.api.values.references import EVERYWHERE
from admission.cli import apps, cluster_options, completion, list_output, referents, terminal, watch_output
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.list_output import ListFormat, ListFormatOption, Listing, SelectorOption
from admission.cli.terminal import Format, Overflow
from admission.cli.watch_output import WatchOption
from admission.errors import FixError
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

SHOWING = apps.epilog(
    ("muster gang show team-a/train", "muster gang show train --namespace team-a --watch"),
    "Exit codes: 0 done, 1 the cluster does not answer, 2 it cannot be reached as told, or has no such gang.",
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


@app.command("show", epilog=SHOWING)
def one(
    name: Annotated[
        str,
        typer.Argument(
            metavar="GANG",
            help="It, or the workload that makes its pods: name, or namespace/name.",
            autocompletion=completion.gangs,
            show_default=False,
        ),
    ],
    *,
    again: WatchOption = False,
    output: Annotated[Format, typer.Option("--format", "-o", help="Tables, or one JSON object.")] = Format.TEXT,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Where GANG names none.")] = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Show one gang: all that is known of it, and its pods with their nodes and devices."""
    name_namespace, _, plain_name = name.rpartition("/")

    async def fetch(cluster: Cluster) -> GangReport:
        return await referents.in_gang(await _find(cluster, name_namespace or namespace, plain_name), cluster)

    def write(report: GangReport) -> None:
        if output is Format.JSON:
            terminal.as_json(as_json(report))
        else:
            _show_one(report)

    watch_output.poll_and_print(
        lambda: cluster_options.query(fetch, kubeconfig=kubeconfig, context=context), write, again=again
    )


async def _find(cluster: Cluster, namespace: str, name: str) -> GangReport:
    found = named(await reports(cluster, namespace), name)
    if found is not None:
        return found
    raise FixError(f"there is no gang or workload of a gang {name} in namespace {namespace}; try `muster gang list`")


def _show_one(report: GangReport) -> None:
    terminal.table(f"Gang {report.key}", ("what", "value"), _facts(report))
    if report.plan:
        terminal.table("Plan", ("pod", "node", "devices"), terminal.plan_rows(report.plan))


def _facts(report: GangReport) -> Iterator[tuple[str, object]]:
    """Yield what is known of a gang; nothing of what does not concern it."""
    yield from (("queue", report.queue), ("phase", report.phase), ("priority", report.priority))
    yield "pods", f"{report.pods} of {report.size}" + (f", {report.expected} to come" if report.expected else "")
    known = {
        "workload": f"{report.workload.kind} {report.workload.name}" if report.workload else "",
        "charges": terminal.charge(report.charges) if report.charges else "",
        "position": report.position,
        "waits since": terminal.moment(report.queued_since),
        "why": f"{report.hold.reason}: {report.hold.message}" if report.hold else "",
        "next try": terminal.moment(report.next_try),
        "start": "; ".join(filter(None, (terminal.moment(report.start_estimate), report.start_reason))),
        "placement": "; ".join(filter(None, (report.placement, report.placement_reason))),
        "not simulated": "; ".join(report.not_simulated),
        "later pods": "; ".join(report.later),
        "evictions": report.evictions,
        "evicted": f"{report.evicted.reason}: {report.evicted.message}" if report.evicted else "",
    }
    yield from ((what, value) for what, value in known.items() if value)


async def reports(cluster: Cluster, namespace: str = "", *, labels: str = "") -> list[GangReport]:
    """Return all gangs: running ones first, waiting ones last, in their order. Only these gangs are named."""
    objects = await cluster.list_objects(watched_resources.GANGS, namespace, labels=labels)
    reported = [status_views.gang(obj) for obj in objects]
    keys = {obj["metadata"].get("uid", ""): report.key for obj, report in zip(objects, reported, strict=True)}
    found = [gang_references.for_reader(gang_references.resolved(one, keys), EVERYWHERE) for one in reported]
    last = len(_ORDER)
    return sorted(found, key=lambda gang: (_ORDER.get(gang.phase, last), gang.queue, gang.position or 0, gang.key))


def named(found: Iterable[GangReport], name: str) -> GangReport | None:
    """Return the first gang with a name, or of a workload with it; None if there is none."""
    return next(
        (one for one in found if one.name == name or (one.workload is not None and one.workload.name == name)), None
    )


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
        "later": list(report.later),
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
