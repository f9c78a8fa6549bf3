"""The commands' output: tables for people, JSON for programs, notes and errors to the standard error.

On a terminal, tables have colours and rules. Elsewhere they are plain text in columns, one row per line, so that grep,
awk and logs can use them.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from admission.api.muster.gangs import Charge, DomainReport, DomainRequest, Evicted, PlannedPod, TopologyReport
from admission.api.muster.status_reports import BudgetUse, MeterUse, QueueReport
from admission.api.values import quantities
from admission.quota import budgets

UNLIMITED = 10_000
"""Columns of plain text; nothing is truncated."""

STYLES: Mapping[str, str] = {
    "Admitted": "green",
    "Running": "green",
    "Finished": "dim",
    "Reserved": "cyan",
    "Held": "yellow",
    "Pending": "yellow",
    "Evicted": "magenta",
    "Denied": "red",
}


class Format(StrEnum):
    """The format of a command's output."""

    TEXT = "text"
    JSON = "json"


class Number(str):
    """The heading of a column of numbers, which are right-aligned."""

    __slots__ = ()


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "none") -> None:
    """Print a table; without rows, a line that says so."""
    console = Console(highlight=False)
    listed = [[_cell(value) for value in row] for row in rows]
    if not listed:
        console.print(Text(f"{title}: {empty}"))
    elif console.is_terminal:
        console.print(_rich_table(title, columns, listed))
        console.print()
    else:
        _plain(title, columns, listed)


def say(text: str) -> None:
    """Print a line."""
    Console(highlight=False, soft_wrap=True).print(Text(text))


def note(text: str) -> None:
    """Print a remark to the standard error, where no program reads it."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(f"note: {text}", style="dim"))


def error(text: str) -> None:
    """Print an error to the standard error."""
    message = Text("error: ", style="bold red").append(Text(text, style="default not bold"))
    Console(stderr=True, highlight=False, soft_wrap=True).print(message)


def as_json(value: Any) -> None:
    """Print one JSON document."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def amount(value: int) -> str:
    """Return an amount of a meter as text; a dash for zero, since most cells of a table of use are zero."""
    return quantities.render(value) if value else "-"


def charge(charges: Charge) -> str:
    """Return a charge as `gpus 4, claims 2`."""
    return ", ".join(f"{meter} {quantities.render(value)}" for meter, value in sorted(charges.items())) or "-"


def amounts(charges: Charge) -> dict[str, str]:
    """Return a charge for JSON."""
    return {str(meter): quantities.render(value) for meter, value in sorted(charges.items())}


def use(meter: MeterUse) -> dict[str, str]:
    """Return a queue's use of a meter for JSON; reserved amounts count as used."""
    values = {
        "nominal": meter.nominal,
        "used": meter.reserved + meter.used,
        "borrowed": meter.borrowed,
        "lent": meter.lent,
        "pending": meter.pending,
    }
    return {name: quantities.render(value) for name, value in values.items()}


def plan(pods: Iterable[PlannedPod]) -> list[dict[str, Any]]:
    """Return a plan for JSON, with names relative to the gang's namespace."""
    return [
        {
            "pod": _local(pod.pod),
            "node": str(pod.node),
            "claims": [
                {
                    "claim": _local(claim.claim),
                    "devices": [
                        {"request": request_device.request, **request_device.device._asdict()}
                        for request_device in sorted(claim.devices)
                    ],
                }
                for claim in pod.claims
            ],
        }
        for pod in pods
    ]


def topology(report: TopologyReport | None) -> dict[str, Any] | None:
    """Return a gang's topology for JSON; None if its pods may go anywhere."""
    if report is None:
        return None
    subgroups = [{"name": name, **_domains(domains)} for name, domains in report.subgroups]
    return {**_domains(report.gang or DomainReport(request=DomainRequest())), "subgroups": subgroups}


def _domains(report: DomainReport) -> dict[str, Any]:
    return {
        "required": report.request.required or None,
        "preferred": report.request.preferred or None,
        "domains": list(report.domains),
        "preferredDomains": list(report.preferred),
    }


def evicted(report: Evicted | None) -> dict[str, Any] | None:
    """Return a gang's eviction for JSON; None if there is none, or the gang runs again."""
    if report is None:
        return None
    fields = {"reason": report.reason, "message": report.message, "at": moment(report.at)}
    return {**fields, "madeRoomFor": report.made_room_for or None}


def plan_rows(pods: Iterable[PlannedPod]) -> list[tuple[str, str, str]]:
    """Return pod, node and devices of a plan, a row for each pod."""
    return [(_local(pod.pod), str(pod.node), _devices(pod)) for pod in pods]


def nodes_of(pods: Iterable[PlannedPod]) -> str:
    """Return the nodes of a plan as `node-1 x2, node-3`."""
    counts: dict[str, int] = {}
    for pod in pods:
        counts[str(pod.node)] = counts.get(str(pod.node), 0) + 1
    return ", ".join(f"{node} x{count}" if count > 1 else node for node, count in sorted(counts.items()))


def _devices(pod: PlannedPod) -> str:
    """Return a pod's devices as text; those in the pool of its node by name only."""
    devices = [given.device for claim in pod.claims for given in sorted(claim.devices)]
    return ", ".join(one.device if one.pool == pod.node else f"{one.pool}/{one.device}" for one in devices) or "-"


def _local(key: str) -> str:
    return key.rpartition("/")[2]


def _cell(value: object) -> Text:
    text = "-" if value is None or value == "" else str(value)
    return Text(text, style=STYLES.get(text, ""))


def _rich_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Text]]) -> Table:
    rich_table = Table(title=title, title_justify="left", title_style="bold", box=box.ROUNDED, header_style="bold")
    for column in columns:
        right = isinstance(column, Number)
        rich_table.add_column(column, justify="right" if right else "left", overflow="fold")
    for row in rows:
        rich_table.add_row(*row)
    return rich_table


def _plain(title: str, columns: Sequence[str], rows: Sequence[Sequence[Text]]) -> None:
    headings = [column.upper() for column in columns]
    widths = [max(len(heading), *(len(row[at].plain) for row in rows)) for at, heading in enumerate(headings)]
    sys.stdout.write(f"{title}\n")
    for row in (headings, *([cell.plain for cell in row] for row in rows)):
        line = "  ".join(
            cell.rjust(width) if isinstance(column, Number) else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        )
        sys.stdout.write(f"{line.rstrip()}\n")
    sys.stdout.write("\n")


def use_rows(queue: QueueReport) -> list[tuple[str, ...]]:
    """Return a queue's use, a row for each meter: queue, meter, nominal, used, borrowed, lent, pending."""
    return [
        (
            queue.name,
            meter,
            quantities.render(use.nominal),
            *map(amount, (use.reserved + use.used, use.borrowed, use.lent, use.pending)),
        )
        for meter, use in sorted(queue.meters.items())
    ]


BUDGET_HEADINGS = (
    "queue",
    "meter",
    "period",
    *map(Number, ("hours", "spent", "promised", "elsewhere", "left")),
    "until",
    "then",
)


def budget_rows(queue: QueueReport) -> list[tuple[str, ...]]:
    """Return the budgets of a queue in meter-hours, a row for each."""
    return [
        (
            queue.name,
            use.meter,
            use.period or "-",
            *map(budgets.hours, (use.limit, use.spent, use.promised, use.elsewhere, use.left)),
            moment(use.end) or "-",
            use.on_exhausted or "-",
        )
        for use in queue.budgets
    ]


def budget(use: BudgetUse) -> dict[str, str | None]:
    """Return a budget for JSON; hours are decimal strings with four places."""
    amounts = {
        "hours": use.limit,
        "spent": use.spent,
        "promised": use.promised,
        "elsewhere": use.elsewhere,
        "left": use.left,
    }
    return {
        "meter": str(use.meter),
        **{name: budgets.hours(seconds) for name, seconds in amounts.items()},
        "period": str(use.period) or None,
        "start": moment(use.start),
        "end": moment(use.end),
        "scope": str(use.scope) or None,
        "onExhausted": str(use.on_exhausted) or None,
    }


def moment(time: datetime | None) -> str | None:
    """Return a time in the API server's format."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z") if time else None


STEPS = 200
"""The most updates of a progress bar; each costs more than reading a row."""


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to call with the steps done and their total, for a progress bar on the standard error.

    Nothing is written if the standard error is no terminal.
    """
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        last = 0

        def watch(done: int, total: int) -> None:
            nonlocal last
            if done < last or (done - last) * STEPS >= total:
                last = done
                bar.update(task, completed=done, total=total)

        yield watch
