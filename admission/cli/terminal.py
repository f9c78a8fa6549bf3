"""The commands' output: tables for people, JSON for programs, notes and errors to the standard error.

Tables are plain columns. On a terminal they have colours and keep to its width; elsewhere they have one row per line,
so that grep, awk and logs can use them.
"""

import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum, StrEnum
from itertools import accumulate, zip_longest
from typing import Any

from rich.cells import cell_len as _width
from rich.console import Console
from rich.text import Text

from admission.api.muster.gangs import Charge, DomainReport, DomainRequest, Evicted, PlannedPod, TopologyReport
from admission.api.muster.status_reports import BudgetUse, MeterUse, QueueReport
from admission.api.values import quantities
from admission.api.values.names import MeterName
from admission.quota import budgets

MORE = " …"
"""What stands for words that were cut."""

STYLES: Mapping[str, str] = {
    "Admitted": "green",
    "Running": "green",
    "Finished": "dim",
    "Reserved": "cyan",
    "Held": "yellow",
    "Pending": "yellow",
    "Evicted": "magenta",
    "Denied": "red",
    "NeverFits": "red",
}


GAP = 2
"""Blanks between two columns."""

READABLE = 24
"""Columns of text that are enough to see what it is about."""


class Format(StrEnum):
    """The format of a command's output."""

    TEXT = "text"
    JSON = "json"


class Overflow(Enum):
    """What becomes of the texts of a table that is too wide for its terminal."""

    FOLD = "they go on in the next line of their column"
    CUT = "they lose their last words"
    WRAP = "they stay whole, and the terminal wraps the lines"


class Number(str):
    """The heading of a column of numbers, which are right-aligned."""

    __slots__ = ()


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    empty: str = "none",
    spare: Sequence[str] = (),
    overflow: Overflow = Overflow.FOLD,
) -> None:
    """Print a table; without rows, a line that says so.

    On a terminal that is too narrow the columns `spare` are left out, the first of them first; then `overflow` says
    what becomes of the longest texts. Words are never cut: a table of long names is wider than its terminal, which
    wraps it.
    """
    console = Console(highlight=False)
    listed = [[_text(value) for value in row] for row in rows]
    if not listed:
        console.print(Text(f"{title}: {empty}"))
        return
    lines = [[column.upper() for column in columns], *listed]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    if not console.is_terminal:
        sys.stdout.write("\n".join((title, *(line.plain for line in _aligned(columns, lines, widths)), "", "")))
        return
    if overflow is not Overflow.WRAP:
        columns, lines, widths = _fitted(columns, lines, spare, overflow, console.width)
    heading, *rest = _aligned(columns, lines, widths)
    heading.stylize("bold")
    text = Text("\n").join((Text(title, style="bold"), heading, *rest, Text()))
    console.print(text, no_wrap=True, overflow="ignore", crop=False)


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


def _text(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def _aligned(columns: Sequence[str], lines: Iterable[Sequence[str]], widths: Sequence[int]) -> Iterator[Text]:
    """Yield lines with their cells side by side, padded and styled."""
    for line in lines:
        aligned = Text()
        for at, (cell, width, column) in enumerate(zip(line, widths, columns, strict=True)):
            padding = " " * (width - _width(cell))
            before, after = (padding, "") if isinstance(column, Number) else ("", padding)
            aligned.append(f"{' ' * GAP if at else ''}{before}").append(cell, style=STYLES.get(cell, "")).append(after)
        aligned.rstrip()
        yield aligned


def _fitted(
    columns: Sequence[str], lines: Sequence[Sequence[str]], spare: Sequence[str], overflow: Overflow, room: int
) -> tuple[list[str], list[list[str]], list[int]]:
    """Return columns, lines and widths of a table that fits into `room`, as far as whole words do."""
    shorten = _cut if overflow is Overflow.CUT else _folded
    heading, *rows = lines
    by_column = [[heading[at], *(row[at] for row in rows)] for at in range(len(columns))]
    kept = list(range(len(columns)))
    for name in spare:
        if _total([_shortened(by_column[at], shorten, READABLE) for at in kept]) <= room:
            break
        kept.remove(columns.index(name))
    least = {at: _shortened(by_column[at], shorten, 1) for at in kept}
    widths = {at: max(map(_width, by_column[at])) for at in kept}
    for _ in range(_total(widths.values()) - room):
        longest = max(kept, key=lambda at: (widths[at] > least[at], widths[at]))
        if widths[longest] == least[longest]:
            break
        widths[longest] -= 1
    shown = [[heading[at] for at in kept]]
    for row in rows:
        parts = zip_longest(*(shorten(row[at], widths[at]) for at in kept), fillvalue="")
        shown += map(list, parts)
    return [columns[at] for at in kept], shown, list(widths.values())


def _total(widths: Iterable[int]) -> int:
    return sum(width + GAP for width in widths) - GAP


def _shortened(column: Sequence[str], shorten: Callable[[str, int], list[str]], width: int) -> int:
    """Return the width of a column whose texts are shortened to `width` where their words allow it."""
    heading, *texts = column
    return max(_width(heading), *(_width(part) for text in texts for part in shorten(text, width)))


def _cut(text: str, width: int) -> list[str]:
    """Return as many whole words as there is room for, and at least the first one."""
    if _width(text) <= width or " " not in text:
        return [text]
    beginnings = list(accumulate(text.split(" ")[:-1], lambda before, word: f"{before} {word}"))
    fitting = [beginning for beginning in beginnings if _width(beginning) + len(MORE) <= width]
    return [f"{(fitting or beginnings[:1])[-1]}{MORE}"]


def _folded(text: str, width: int) -> list[str]:
    """Return the lines of a text, between whose words it is broken."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [text]


def use_rows(queue: str, uses: Mapping[MeterName, MeterUse]) -> list[tuple[str, ...]]:
    """Return a queue's use, a row for each meter: queue, meter, nominal, used, borrowed, lent, pending."""
    return [
        (
            queue,
            meter,
            quantities.render(use.nominal),
            *map(amount, (use.reserved + use.used, use.borrowed, use.lent, use.pending)),
        )
        for meter, use in sorted(uses.items())
    ]


BUDGET_HEADINGS = (
    "queue",
    "meter",
    "period",
    *map(Number, ("hours", "spent", "promised", "elsewhere", "left")),
    "until",
    "then",
)

BUDGET_SPARE = ("then", "elsewhere", "promised", "period")
"""The columns of budgets that a narrow terminal does without."""


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
    from rich.progress import Progress  # noqa: PLC0415 - a third of what this module would take to import

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
