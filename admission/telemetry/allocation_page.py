"""The text that exports allocated devices, one line for each, kept from one scrape to the next.

The library makes 40,000 samples with 14 labels into text in most of a second, while nothing else runs. Most lines are
what they were at the last scrape, so here only those of claims that changed are made again.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from admission.incremental import Derived
from admission.status.device_allocations import AllocationsByClaim, DeviceAllocation
from admission.telemetry import metric_catalog
from admission.telemetry.metric_catalog import Metric

_LINE = (
    metric_catalog.ALLOCATIONS.name
    + "{"
    + ",".join(f'{label}="%s"' for label in metric_catalog.ALLOCATIONS.label_names)
    + "} 1\n"
)
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
"""Of the text format for values of labels (prometheus.io/docs/instrumenting/exposition_formats)."""


class _Lines(NamedTuple):
    """The lines of one claim's devices."""

    devices: int
    text: bytes


class AllocationPage:
    """The part of the page about allocated devices. limit: the most lines; the order of claims decides who is left out.

    `allocations` is set after every cycle of the leader, and None while this process does not lead.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines: Derived[str, tuple[DeviceAllocation, ...], _Lines] = Derived(_lines)
        self.allocations: AllocationsByClaim | None = None

    def render(self) -> bytes:
        """Return the lines, and how many devices are left out; nothing if no devices are exported."""
        if not self._limit:
            return b""
        self._lines.update(self.allocations if self.allocations is not None else {})
        lines = self._lines.values
        devices = sum(one.devices for one in lines.values())
        shown: Iterable[bytes] = (one.text for one in lines.values())
        if devices > self._limit:
            shown = self._first(devices)
        omitted = b""
        if self.allocations is not None:
            omitted = b"%s %d\n" % (metric_catalog.OMITTED.name.encode(), max(0, devices - self._limit))
        return b"".join((_head(metric_catalog.ALLOCATIONS), *shown, _head(metric_catalog.OMITTED), omitted))

    def _first(self, devices: int) -> Iterator[bytes]:
        """Yield as many lines as there may be, in the order of claims, so that every scrape has the same."""
        left = min(self._limit, devices)
        for _, one in sorted(self._lines.values.items()):
            if left < one.devices:
                yield from one.text.splitlines(keepends=True)[:left]
                return
            yield one.text
            left -= one.devices


def _lines(_: str, allocations: tuple[DeviceAllocation, ...]) -> _Lines:
    return _Lines(len(allocations), "".join(_LINE % _escaped(one) for one in allocations).encode())


def _escaped(allocation: DeviceAllocation) -> tuple[str, ...]:
    whole = "".join(allocation)
    if "\\" in whole or '"' in whole or "\n" in whole:
        return tuple(value.translate(_ESCAPED) for value in allocation)
    return allocation


def _head(metric: Metric) -> bytes:
    return f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.type}\n".encode()
