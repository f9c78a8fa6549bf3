"""`muster queue`: the use of queues, from the status that the controller writes."""

from collections.abc import Callable, Iterator
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from admission.api.kubernetes.meta import ConditionStatus
from admission.api.muster import queues, status_views
from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.queues import Queue, StopPolicy
from admission.api.muster.status_reports import QueueReport
from admission.api.values import quantities
from admission.cli import apps, cluster_options, referents, terminal
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.gang import reports as gang_reports
from admission.cli.output import list_output, watch_output
from admission.cli.output.list_output import ListFormat, ListFormatOption, Listing, SelectorOption
from admission.cli.output.watch_output import FollowOption, WatchOption
from admission.cli.queue import create as queue_create, edit as queue_edit, stop as queue_stop
from admission.cli.queue.stop import QueueArgument
from admission.cli.terminal import Format, Number, Overflow
from admission.kube.cache import watched_resources

app = apps.group()

EPILOG = apps.epilog(
    (
        "muster queue list",
        "muster queue list --watch --sort-by use",
        "muster queue list --format json | jq '.queues[] | {name, gpus: .meters.gpus}'",
    ),
    "Exit codes: 0 done, 1 the cluster does not answer, 2 it cannot be reached as told.",
)

SHOWING = apps.epilog(
    ("muster queue show research", "muster queue show research --watch", "muster queue show research -o json"),
    "Exit codes: 0 done, 1 the cluster does not answer, 2 it cannot be reached as told, or has no such queue.",
)

_COUNTED = (Phase.PENDING, Phase.RESERVED, Phase.ADMITTED, Phase.RUNNING)

_AMOUNTS = ("nominal", "used", "borrowed", "lent", "pending", "waiting", "running")
_HEADINGS = ("queue", "meter", *map(Number, _AMOUNTS))
_SPARE = ("lent", "pending", "borrowed")
"""The columns that a narrow terminal does without."""


class SortQueues(StrEnum):
    """The order of a list of queues."""

    NAME = "name"
    USE = "use"
    WAITING = "waiting"
    RUNNING = "running"


@app.callback()
def _group() -> None:
    """Queues: use against quota, and whether they let gangs in."""


@app.command("list", epilog=EPILOG)
def listed(
    *,
    again: WatchOption = False,
    output: ListFormatOption = ListFormat.TEXT,
    labels: SelectorOption = "",
    sort: Annotated[
        SortQueues,
        typer.Option("--sort-by", help="The queue with the fullest meter, or the most gangs that wait or run, first."),
    ] = SortQueues.NAME,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Show what every queue is entitled to, uses, borrows and lends, and what waits in it."""

    async def fetch(cluster: Cluster) -> list[QueueReport]:
        return sorted(await _reports(cluster, labels), key=_SORT_KEYS[sort])

    watch_output.poll_and_print(
        lambda: cluster_options.query(fetch, kubeconfig=kubeconfig, context=context),
        lambda reports: list_output.write(_listing(reports), output),
        again=again,
    )


@app.command("show", epilog=SHOWING)
def one(
    name: QueueArgument,
    *,
    again: WatchOption = False,
    output: Annotated[Format, typer.Option("--format", "-o", help="Tables, or one JSON object.")] = Format.TEXT,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Show one queue: its place in the tree, use and budgets, what is wrong with it, and its gangs in their order."""
    _watch(name, again=again, output=output, kubeconfig=kubeconfig, context=context)


@app.command(epilog=queue_stop.STOPPING)
def stop(
    name: QueueArgument,
    *,
    drain: Annotated[bool, typer.Option("--drain", help="Evict what runs, too (HoldAndDrain).")] = False,
    again: FollowOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Stop a queue: no gang of it, or of a queue below it, starts any more."""
    wanted = StopPolicy.HOLD_AND_DRAIN if drain else StopPolicy.HOLD
    cluster_options.query(
        lambda cluster: queue_stop.change(cluster, name, wanted), kubeconfig=kubeconfig, context=context
    )
    if again:
        _watch(name, again=True, kubeconfig=kubeconfig, context=context)


@app.command(epilog=queue_stop.RESUMING)
def resume(
    name: QueueArgument,
    *,
    again: FollowOption = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Let a stopped queue let gangs in again."""
    cluster_options.query(
        lambda cluster: queue_stop.change(cluster, name, StopPolicy.NONE), kubeconfig=kubeconfig, context=context
    )
    if again:
        _watch(name, again=True, kubeconfig=kubeconfig, context=context)


app.command("create", epilog=queue_create.EPILOG)(queue_create.create)
app.command("edit", epilog=queue_edit.EPILOG)(queue_edit.edit)


class ObservedQueue(NamedTuple):
    """One queue: its spec, its status, its gangs, and the names of the queues below it."""

    queue: Queue
    report: QueueReport
    gangs: list[GangReport]
    children: list[str]


def _watch(
    name: str, *, again: bool, output: Format = Format.TEXT, kubeconfig: Path | None, context: str | None
) -> None:
    def write(observed: ObservedQueue) -> None:
        if output is Format.JSON:
            terminal.as_json(_observed_json(observed))
        else:
            _show_observed(observed)

    watch_output.poll_and_print(
        lambda: cluster_options.query(lambda cluster: _observe(cluster, name), kubeconfig=kubeconfig, context=context),
        write,
        again=again,
    )


async def _observe(cluster: Cluster, name: str) -> ObservedQueue:
    found = {obj["metadata"]["name"]: obj for obj in await cluster.list_objects(watched_resources.QUEUES)}
    queues_by_name = {queue_name: queues.decode(obj) for queue_name, obj in found.items()}
    if name not in queues_by_name:
        raise queue_stop.unknown_queue(name, queues_by_name.values())
    members = [
        gang for gang in await gang_reports.reports(cluster) if gang.queue == name and gang.phase is not Phase.FINISHED
    ]
    [report] = await referents.in_queues([status_views.queue(found[name])], cluster)
    children = sorted(queue.name for queue in queues_by_name.values() if queue.parent == name)
    return ObservedQueue(queues_by_name[name], report, members, list(children))


def _show_observed(observed: ObservedQueue) -> None:
    queue = observed.queue
    place = f"below {queue.parent}" if queue.parent else "a root"
    children_text = f"; below it: {', '.join(observed.children)}" if observed.children else ""
    stopped = f"; stopped: {queue.stop_policy}" if queue.stop_policy is not StopPolicy.NONE else ""
    terminal.say(f"Queue {queue.name} ({place}{children_text}); {queue.strategy}{stopped}")
    if queue.preferences is not None:
        kinds = ", ".join(kind.name for kind in queue.preferences.kinds)
        terminal.say(f"Kinds of devices, as preferred: {kinds} (whenCanBorrow: {queue.preferences.when_can_borrow})")
    show([observed.report])
    gang_reports.show(observed.gangs)


def _observed_json(observed: ObservedQueue) -> dict[str, Any]:
    preferences = observed.queue.preferences
    return {
        **_json(observed.report),
        "parent": observed.queue.parent,
        "children": observed.children,
        "stopPolicy": str(observed.queue.stop_policy),
        "preferences": [kind.name for kind in preferences.kinds] if preferences is not None else [],
        "members": [gang_reports.as_json(gang) for gang in observed.gangs],
    }


def show(reports: list[QueueReport], overflow: Overflow = Overflow.CUT) -> None:
    """Print the tables, and a note for each false condition of a queue."""
    rows = [row for report in reports for row in _rows(report)]
    terminal.table("Queues", _HEADINGS, rows, spare=_SPARE, overflow=overflow)
    budget_rows = [row for report in reports for row in terminal.budget_rows(report)]
    if budget_rows:
        terminal.table("Budgets", terminal.BUDGET_HEADINGS, budget_rows, spare=terminal.BUDGET_SPARE, overflow=overflow)
    for report in reports:
        for condition in report.conditions:
            if condition.status is not ConditionStatus.TRUE:
                active = " is not active" if condition.type == "Active" else ""
                terminal.note(f"queue {report.name}{active}: {condition.message}")


def _listing(reports: list[QueueReport]) -> Listing:
    return Listing(
        show=lambda overflow: show(reports, overflow),
        document=lambda: {"queues": [_json(report) for report in reports]},
        names=(f"queue.muster.dev/{report.name}" for report in reports),
        headings=_HEADINGS,
        rows=(row for report in reports for row in _csv_rows(report)),
    )


def _fullest(report: QueueReport) -> Fraction:
    """Return the greatest share of its nominal quota that a queue uses; of a meter without one, each unit counts."""
    return max(
        (Fraction(use.reserved + use.used, max(use.nominal, 1)) for use in report.meters.values()), default=Fraction()
    )


_SORT_KEYS: dict[SortQueues, Callable[[QueueReport], Any]] = {
    SortQueues.NAME: lambda report: report.name,
    SortQueues.USE: lambda report: -_fullest(report),
    SortQueues.WAITING: lambda report: -report.gangs.get(Phase.PENDING, 0),
    SortQueues.RUNNING: lambda report: -report.gangs.get(Phase.RUNNING, 0),
}
"""Sorting is stable: among equals the order of names stays."""


async def _reports(cluster: Cluster, labels: str) -> list[QueueReport]:
    found = await cluster.list_objects(watched_resources.QUEUES, labels=labels)
    reports = await referents.in_queues(map(status_views.queue, found), cluster)
    return sorted(reports, key=lambda report: report.name)


def _rows(report: QueueReport) -> list[tuple[str, ...]]:
    """Return a row for each meter; the first row has the numbers of gangs."""
    waiting, running = report.gangs.get(Phase.PENDING, 0), report.gangs.get(Phase.RUNNING, 0)
    counts = (str(waiting or "-"), str(running or "-"))
    rows = terminal.use_rows(report) or [(report.name, *("-" for _ in range(6)))]
    return [(*row, *(counts if at == 0 else ("", ""))) for at, row in enumerate(rows)]


def _csv_rows(report: QueueReport) -> Iterator[tuple[object, ...]]:
    """Yield a row for each meter; all have the queue's numbers of gangs."""
    gangs = (report.gangs.get(Phase.PENDING, 0), report.gangs.get(Phase.RUNNING, 0))
    for meter, use in sorted(report.meters.items()):
        amounts = (use.nominal, use.reserved + use.used, use.borrowed, use.lent, use.pending)
        yield (report.name, meter, *map(quantities.render, amounts), *gangs)
    if not report.meters:
        yield (report.name, "", *("" for _ in range(5)), *gangs)


def _json(report: QueueReport) -> dict[str, Any]:
    active = next((condition for condition in report.conditions if condition.type == "Active"), None)
    return {
        "name": report.name,
        "active": active is not None and active.status is ConditionStatus.TRUE,
        "message": active.message if active else "",
        "conditions": {
            condition.type: {"status": condition.status, "reason": condition.reason, "message": condition.message}
            for condition in report.conditions
        },
        "meters": {meter: terminal.use(use) for meter, use in sorted(report.meters.items())},
        "budgets": [terminal.budget(budget) for budget in report.budgets],
        "gangs": {phase: report.gangs.get(phase, 0) for phase in _COUNTED},
    }
