"""Charts of a replayed trace, as SVG: devices in use and waiting jobs over time."""

import itertools
import re
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from admission.errors import FixError
from admission.simulation.replay.player import ReplayResult, Sample

POINTS = 500
"""The points of each line. Every point is the mean over its interval."""

MANY = 10
"""From this value on, axis labels are whole numbers."""

HOUR = timedelta(hours=1)

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def write(path: Path, results: Sequence[ReplayResult]) -> None:
    """Write a chart. Raises FixError if the library is not installed or the file cannot be written."""
    text = svg(results)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FixError(f"--chart {path}: cannot be written: {error}") from error


def svg(results: Sequence[ReplayResult]) -> str:
    """Return the chart; the same plays always give the same text."""
    pygal = _library()
    waiting = [points(result, lambda sample: sample.waiting) for result in results]
    most = max((value for series in waiting for _, value in series), default=0.0)
    chart = pygal.XY(
        title="Devices in use (%) and jobs that wait (right)",
        x_title="hours",
        stroke=True,
        show_dots=False,
        js=[],
        no_prefix=True,
        width=1000,
        legend_at_bottom=True,
        legend_at_bottom_columns=2,
        truncate_legend=-1,
        # Both axes begin at 0: a cut axis exaggerates small differences.
        range=(0, 100),
        secondary_range=(0, max(most, 1.0)),
        value_formatter=lambda value: f"{value:.0f}" if value >= MANY else f"{value:.2g}",
    )
    chart.uuid = "muster"
    for result in results:
        total = sum(result.devices.values())
        chart.add(
            f"in use, {result.policy}",
            points(result, lambda sample: 100 * sample.used.total() / (total + sample.added or 1)),  # noqa: B023
        )
    for result, series in zip(results, waiting, strict=True):
        chart.add(f"waiting, {result.policy}", series, secondary=True)
    # The library writes its version and the date into a comment.
    return _COMMENT.sub("", str(chart.render(is_unicode=True)))


def points(result: ReplayResult, value: Callable[[Sample], float]) -> list[tuple[float, float]]:
    """Return hours since the trace began, each with the mean of a value in its interval."""
    samples = result.samples
    if not samples:
        return []
    first, end = samples[0].at, samples[-1].at
    step = (end - first) / POINTS
    if not step:
        return [(first / HOUR, value(samples[-1]))]
    sums = [0.0] * POINTS
    for sample, after in itertools.pairwise(samples):
        _spread(sums, (sample.at - first) / step, (after.at - first) / step, value(sample))
    return [((first + (at + 0.5) * step) / HOUR, total) for at, total in enumerate(sums)]


def _spread(sums: list[float], start: float, end: float, value: float) -> None:
    """Add a value to the means of all points between two times, in units of points."""
    at = int(start)
    while start < end and at < len(sums):
        until = min(end, at + 1.0)
        sums[at] += value * (until - start)
        start, at = until, at + 1


def _library() -> Any:
    # Imported here since it is optional.
    try:
        import pygal  # noqa: PLC0415
    except ImportError as error:
        raise FixError(
            "--chart needs the Python package pygal: in a checkout of Muster, `uv tool install '.[charts]'`"
        ) from error
    # pygal adds a finder to every later import, with an interface that Python has removed, for old names of its
    # plug-ins.
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != pygal.__name__]
    return pygal
