"""`muster gang`: the gangs of a cluster and their phases, and what may be asked of them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from admission.api.muster.gang_requests import Action
from admission.api.muster.gangs import GangReport
from admission.cli import apps, cluster_options, completion, referents, terminal
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.gang import reports, requests
from admission.cli.gang.requests import Asked
from admission.cli.output import list_output, watch_output
from admission.cli.output.list_output import ListFormat, ListFormatOption, Listing, SelectorOption
from admission.cli.output.watch_output import WatchOption
from admission.cli.terminal import Format

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
        found = await reports.reports(cluster, "" if everywhere else namespace, labels=labels)
        return sorted((one for one in found if not queue or one.queue == queue), key=_SORT_KEYS[sort])

    watch_output.poll_and_print(
        lambda: cluster_options.query(fetch, kubeconfig=kubeconfig, context=context),
        lambda found: list_output.write(_listing(found), output),
        again=again,
    )


GangArgument = Annotated[
    str,
    typer.Argument(
        metavar="GANG",
        help="It, or the workload that makes its pods: name, or namespace/name.",
        autocompletion=completion.gangs,
        show_default=False,
    ),
]
NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", help="Where GANG names none.")]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why, for those who ask later.")]


@app.command("show", epilog=SHOWING)
def one(
    name: GangArgument,
    *,
    again: WatchOption = False,
    output: Annotated[Format, typer.Option("--format", "-o", help="Tables, or one JSON object.")] = Format.TEXT,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Show one gang: all that is known of it, and its pods with their nodes and devices."""

    async def fetch(cluster: Cluster) -> GangReport:
        found = await reports.find(cluster, *cluster_options.split_name(name, namespace))
        return await referents.in_gang(found, cluster)

    def write(report: GangReport) -> None:
        if output is Format.JSON:
            terminal.as_json(reports.as_json(report))
        else:
            _show_one(report)

    watch_output.poll_and_print(
        lambda: cluster_options.query(fetch, kubeconfig=kubeconfig, context=context), write, again=again
    )


@app.command(epilog=requests.EVICTING)
def evict(
    name: GangArgument,
    *,
    reason: ReasonOption = "",
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Take a gang that was let in back as a whole; it waits again."""
    _ask(_asked(Action.EVICT, name, namespace, reason), kubeconfig, context)


@app.command(epilog=requests.REQUEUEING)
def requeue(
    name: GangArgument,
    *,
    reason: ReasonOption = "",
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Try a gang that waits now: its back-off is forgotten, and on which nodes it did not start."""
    _ask(_asked(Action.REQUEUE, name, namespace, reason), kubeconfig, context)


@app.command(epilog=requests.PRIORITIZING)
def prioritize(
    name: GangArgument,
    priority_class: Annotated[str, typer.Argument(metavar="CLASS", help="A priority class of its queue.")],
    *,
    reason: ReasonOption = "",
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Give a gang that waits another priority class of its queue."""
    asked = _asked(Action.PRIORITIZE, name, namespace, reason)
    _ask(replace(asked, priority_class=priority_class), kubeconfig, context)


def _asked(action: Action, name: str, namespace: str, reason: str) -> Asked:
    named, plain_name = cluster_options.split_name(name, namespace)
    return Asked(action=action, namespace=named, name=plain_name, reason=reason)


def _ask(asked: Asked, kubeconfig: Path | None, context: str | None) -> None:
    is_done = cluster_options.query(
        lambda cluster: requests.ask(cluster, asked), kubeconfig=kubeconfig, context=context
    )
    if not is_done:
        raise typer.Exit(requests.NOTHING_DONE)


def _show_one(report: GangReport) -> None:
    terminal.table(f"Gang {report.key}", ("what", "value"), _facts(report))
    if report.plan:
        terminal.table("Plan", ("pod", "node", "devices"), terminal.plan_rows(report.plan))


def _facts(report: GangReport) -> Iterator[tuple[str, object]]:
    """Yield what is known of a gang; nothing of what does not concern it."""
    yield from (("queue", report.queue), ("phase", reports.state(report)), ("priority", report.priority))
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
    if report.answered is not None:
        yield "last request", reports.request(report.answered)


def _listing(found: list[GangReport]) -> Listing:
    return Listing(
        show=lambda overflow: reports.show(found, overflow),
        document=lambda: {"gangs": [reports.as_json(report) for report in found]},
        names=(f"gang.muster.dev/{report.name}" for report in found),
        headings=_CSV_HEADINGS,
        rows=map(_csv_row, found),
    )


def _csv_row(report: GangReport) -> tuple[object, ...]:
    charges = terminal.charge(report.charges) if report.charges else ""
    return (
        *(report.namespace, report.name, report.queue, report.phase, report.position, report.pods, report.size),
        *(charges, terminal.nodes_of(report.plan)),
        *((report.hold.reason, report.hold.message) if report.hold else ("", "")),
    )
