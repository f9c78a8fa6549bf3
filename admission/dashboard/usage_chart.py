"""A bar chart of use or waiting over time, stacked by group: positions and texts; a template writes the SVG."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from admission.dashboard import formatting
from admission.dashboard.ledger_queries import Measure, Use

WIDTH, HEIGHT = 960, 240
HALF = 480
"""The width of a chart beside another one, which a telephone shows as a whole."""
LEFT, BOTTOM, TOP = 64, 24, 8
SERIES = 7
"""The most groups with a colour of their own; the others are combined."""
TOPS = (3, 5, SERIES)
"""How many groups may be asked for."""
OTHERS = "all others"
UNKNOWN = "unknown"
_LABELS = 8
_CHARACTER = 6
"""The width of a character of a label, at most: one that would leave the drawing is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A part of a column. series: the number of its colour, from 0."""

    x: float
    y: float
    width: float
    height: float
    series: int
    tooltip: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A label on an axis. at: its position along the axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A row of the table beside the chart, which is its legend: device-seconds in total, and in each period.

    key: by which it is left out of the drawing; shown: whether it is drawn.
    """

    key: str
    name: str
    series: int
    total: int
    amounts: Sequence[int]
    shown: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart, and the same data as a table. unit: of its amounts, where they are written as hours."""

    width: int
    height: int
    left: int
    base: int
    bars: tuple[Bar, ...]
    marks_x: tuple[Mark, ...]
    marks_y: tuple[Mark, ...]
    groups: tuple[Group, ...]
    periods: Sequence[datetime]
    total: int
    unit: str


def chart(
    use: Use, *, measure: Measure = Measure.USE, top: int = SERIES, hidden: Collection[str] = (), width: int = WIDTH
) -> Chart:
    """Return the chart of the use or the waiting in a period. Amounts are seconds, shown as hours.

    top: how many groups have a colour of their own. hidden: keys of groups that are not drawn; the rest is stacked
    without them, in the same colours, on an axis of its own.
    """
    groups = _groups(use, top, hidden)
    drawn = [group for group in groups if group.shown]
    sums = [sum(group.amounts[at] for group in drawn) for at in range(len(use.periods))]
    top, steps = _round_up(max(sums, default=0))
    base = HEIGHT - BOTTOM
    plot_height = base - TOP
    column_width = (width - LEFT) / max(1, len(use.periods))
    bars: list[Bar] = []
    for at, period in enumerate(use.periods):
        y = float(base)
        for group in drawn:
            height = plot_height * group.amounts[at] / top if top else 0.0
            if height:
                y -= height
                tooltip = f"{period.start:%Y-%m-%d %H:%M}: {group.name} {formatting.hours(group.amounts[at])} {measure}"
                gap = min(2.0, column_width / 4)
                bars.append(
                    Bar(
                        x=LEFT + at * column_width,
                        y=y,
                        width=column_width - gap,
                        height=height,
                        series=group.series,
                        tooltip=tooltip,
                    )
                )
    return Chart(
        width=width,
        height=HEIGHT,
        left=LEFT,
        base=base,
        bars=tuple(bars),
        marks_x=_marks_x(use, column_width, width),
        marks_y=tuple(
            Mark(at=base - plot_height * part / steps, text=formatting.hours(top * part // steps))
            for part in range(steps + 1)
        ),
        groups=tuple(groups),
        periods=[period.start for period in use.periods],
        total=sum(group.total for group in groups),
        unit=str(measure),
    )


def _groups(use: Use, top: int, hidden: Collection[str]) -> list[Group]:
    """Return the groups, the largest first, with the remaining ones combined."""
    ranked = sorted(use.amounts.items(), key=lambda item: (-sum(item[1]), item[0]))
    found = [
        Group(
            key=name or UNKNOWN,
            name=name or UNKNOWN,
            series=at,
            total=sum(amounts),
            amounts=amounts,
            shown=(name or UNKNOWN) not in hidden,
        )
        for at, (name, amounts) in enumerate(ranked[:top])
    ]
    if rest := ranked[top:]:
        amounts = [sum(values[at] for _, values in rest) for at in range(len(use.periods))]
        found.append(
            Group(
                key=OTHERS,
                name=f"{OTHERS} ({len(rest)})",
                series=SERIES,
                total=sum(amounts),
                amounts=amounts,
                shown=OTHERS not in hidden,
            )
        )
    return found


def _round_up(seconds: int) -> tuple[int, int]:
    """Return the next amount that is 1, 2 or 5 times a power of ten hours, and the number of its axis steps."""
    step = 3_600
    while True:
        for factor, parts in ((1, 5), (2, 4), (5, 5)):
            if step * factor >= seconds:
                return step * factor, parts
        step *= 10


def _marks_x(use: Use, column_width: float, width: int) -> tuple[Mark, ...]:
    count = len(use.periods)
    interval = max(1, -(-count * WIDTH // (_LABELS * width)))
    is_short = bool(use.periods) and (use.periods[-1].end - use.periods[0].start).days < 3
    date_format = "%d %b %H:%M" if is_short else "%d %b"
    marks = (
        Mark(at=LEFT + at * column_width, text=f"{use.periods[at].start:{date_format}}")
        for at in range(0, count, interval)
    )
    return tuple(mark for mark in marks if mark.at + _CHARACTER * len(mark.text) <= width)
