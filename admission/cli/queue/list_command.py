"""`muster queue`: the use of queues, from the status that the controller writes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from admission.api.kubernetes.meta import ConditionStatus
from admission.api.muster import queues, status_views
from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.queues import Queue, StopPolicy
from admission.api.muster.status_reports import QueueReport
from admission.api.values import quantities
from admission.api.values.decoding import Json
from admission.api.values.names import QueueName
from admission.cli import apps, cluster_options, referents, terminal
from admission.cli.cluster_options import Cluster, ContextOption, KubeconfigOption
from admission.cli.gang import reports as gang_reports
from admission.cli.output import list_output, watch_output
from admission.cli.output.list_output import ListFormat, ListFormatOption, Listing, SelectorOption
from admission.cli.output.watch_output import FollowOption, WatchOption
from admission.cli.queue import create as queue_create, edit as queue_edit, stop as queue_stop
from admission.cli.queue.stop import QueueArgument
from admission.cli.terminal import Format, Number, Overflow
from admission.errors import MalformedObjectError
from admission.kube.cache import watched_resources
from admission.status import queue_sums
from admission.status.queue_sums import SubtreeSums

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

_AMOUNTS = ("nominal", "used", "borrowed", "lent", "pending", "waiting", "started")
_HEADINGS = ("queue", "meter", *map(Number, _AMOUNTS))
_SPARE = ("lent", "pending", "borrowed")
"""The columns that a narrow terminal does without."""


class SortQueues(StrEnum):
    """The order of a list of queues."""

    NAME = "name"
    USE = "use"
    WAITING = "waiting"
    STARTED = "started"


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
        typer.Option(
            "--sort-by", help="The queue with the fullest meter, or the most gangs that wait or were let in, first."
        ),
    ] = SortQueues.NAME,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Show what every queue is entitled to, uses, borrows and lends, and what waits in it and the queues below it."""

    async def fetch(cluster: Cluster) -> list[ListedQueue]:
        return sorted(await _queues(cluster, labels), key=_SORT_KEYS[sort])

    watch_output.poll_and_print(
        lambda: cluster_options.query(fetch, kubeconfig=kubeconfig, context=context),
        lambda listed: list_output.write(_listing(listed), output),
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


class ListedQueue(NamedTuple):
    """The status of a queue, and the sums of it and the queues below it."""

    report: QueueReport
    sums: SubtreeSums


class ObservedQueue(NamedTuple):
    """One queue: its spec, its status with its sums, its gangs, and the names of the queues below it."""

    queue: Queue
    listed: ListedQueue
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
    [listed] = [queue for queue in with_sums(found.values()) if queue.report.name == name]
    [report] = await referents.in_queues([listed.report], cluster)
    children = sorted(queue.name for queue in queues_by_name.values() if queue.parent == name)
    return ObservedQueue(queues_by_name[name], ListedQueue(report, listed.sums), members, list(children))


def _show_observed(observed: ObservedQueue) -> None:
    queue = observed.queue
    place = f"below {queue.parent}" if queue.parent else "a root"
    children_text = f"; below it: {', '.join(observed.children)}" if observed.children else ""
    stopped = f"; stopped: {queue.stop_policy}" if queue.stop_policy is not StopPolicy.NONE else ""
    terminal.say(f"Queue {queue.name} ({place}{children_text}); {queue.strategy}{stopped}")
    if queue.preferences is not None:
        kinds = ", ".join(kind.name for kind in queue.preferences.kinds)
        terminal.say(f"Kinds of devices, as preferred: {kinds} (whenCanBorrow: {queue.preferences.when_can_borrow})")
    show([observed.listed])
    gang_reports.show(observed.gangs)


def _observed_json(observed: ObservedQueue) -> dict[str, Any]:
    preferences = observed.queue.preferences
    return {
        **_json(observed.listed),
        "parent": observed.queue.parent,
        "children": observed.children,
        "stopPolicy": str(observed.queue.stop_policy),
        "preferences": [kind.name for kind in preferences.kinds] if preferences is not None else [],
        "members": [gang_reports.as_json(gang) for gang in observed.gangs],
    }


def show(listed: list[ListedQueue], overflow: Overflow = Overflow.CUT) -> None:
    """Print the tables, and a note for each false condition of a queue."""
    rows = [row for queue in listed for row in _rows(queue)]
    terminal.table("Queues", _HEADINGS, rows, spare=_SPARE, overflow=overflow)
    budget_rows = [row for queue in listed for row in terminal.budget_rows(queue.report)]
    if budget_rows:
        terminal.table("Budgets", terminal.BUDGET_HEADINGS, budget_rows, spare=terminal.BUDGET_SPARE, overflow=overflow)
    for report, _ in listed:
        for condition in report.conditions:
            if condition.status is not ConditionStatus.TRUE:
                active = " is not active" if condition.type == "Active" else ""
                terminal.note(f"queue {report.name}{active}: {condition.message}")


def _listing(listed: list[ListedQueue]) -> Listing:
    return Listing(
        show=lambda overflow: show(listed, overflow),
        document=lambda: {"queues": [_json(queue) for queue in listed]},
        names=(f"queue.muster.dev/{queue.report.name}" for queue in listed),
        headings=_HEADINGS,
        rows=(row for queue in listed for row in _csv_rows(queue)),
    )


def _fullest(queue: ListedQueue) -> int:
    return max(map(queue_sums.taken_parts, queue.sums.uses.values()), default=0)


_SORT_KEYS: dict[SortQueues, Callable[[ListedQueue], Any]] = {
    SortQueues.NAME: lambda queue: queue.report.name,
    SortQueues.USE: lambda queue: -_fullest(queue),
    SortQueues.WAITING: lambda queue: -queue.sums.waiting,
    SortQueues.STARTED: lambda queue: -queue.sums.started,
}
"""Sorting is stable: among equals the order of names stays."""


async def _queues(cluster: Cluster, labels: str) -> list[ListedQueue]:
    """Return the queues with some labels by name. All are read, since the sums have those below them."""
    found = with_sums(await cluster.list_objects(watched_resources.QUEUES))
    if labels:
        selected = await cluster.list_objects(watched_resources.QUEUES, labels=labels)
        names = {obj["metadata"]["name"] for obj in selected}
        found = [queue for queue in found if queue.report.name in names]
    reports = await referents.in_queues([queue.report for queue in found], cluster)
    listed = (ListedQueue(report, queue.sums) for report, queue in zip(reports, found, strict=True))
    return sorted(listed, key=lambda queue: queue.report.name)


def with_sums(found: Iterable[Json]) -> list[ListedQueue]:
    """Return the queues of some objects, with the sums of those that are below each."""
    reports, specs = dict[QueueName, QueueReport](), dict[QueueName, Queue]()
    for obj in found:
        report = status_views.queue(obj)
        reports[report.name] = report
        # The status of a malformed queue says what is wrong with it.
        with suppress(MalformedObjectError):
            specs[report.name] = queues.decode(obj)
    sums = queue_sums.sums(reports, specs)
    return [ListedQueue(report, sums[name]) for name, report in reports.items()]


def _rows(queue: ListedQueue) -> list[tuple[str, ...]]:
    """Return a row for each meter; the first row has the numbers of gangs."""
    name, sums = queue.report.name, queue.sums
    counts = (str(sums.waiting or "-"), str(sums.started or "-"))
    rows = terminal.use_rows(name, sums.uses) or [(name, *("-" for _ in range(6)))]
    return [(*row, *(counts if at == 0 else ("", ""))) for at, row in enumerate(rows)]


def _csv_rows(queue: ListedQueue) -> Iterator[tuple[object, ...]]:
    """Yield a row for each meter; all have the queue's numbers of gangs."""
    name, sums = queue.report.name, queue.sums
    for meter, use in sorted(sums.uses.items()):
        amounts = (use.nominal, use.reserved + use.used, use.borrowed, use.lent, use.pending)
        yield (name, meter, *map(quantities.render, amounts), sums.waiting, sums.started)
    if not sums.uses:
        yield (name, "", *("" for _ in range(5)), sums.waiting, sums.started)


def _json(queue: ListedQueue) -> dict[str, Any]:
    report, sums = queue
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
        "subtree": {meter: terminal.use(use) for meter, use in sorted(sums.uses.items())},
        "waiting": sums.waiting,
        "started": sums.started,
        "budgets": [terminal.budget(budget) for budget in report.budgets],
        "gangs": {phase: report.gangs.get(phase, 0) for phase in _COUNTED},
    }
