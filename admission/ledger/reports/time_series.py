"""Use over time: device-hours of each day, hour or month, by queue, namespace, user or class; for charts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction

from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting import accruals
from admission.ledger.journal.base import Window
from admission.ledger.reports import allocation_intervals, usage_report
from admission.ledger.reports.usage_report import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Device-seconds by group and period. amounts: for each group, one amount per period, in their order."""

    key: Key
    periods: Sequence[Window]
    amounts: dict[str, list[int]] = field(default_factory=dict)


async def series(
    connection: AsyncConnection,
    cluster: str,
    *,
    key: Key,
    window: Window,
    after: Callable[[datetime], datetime],
    queue: str = "",
) -> Series:
    """Return the use of one queue or of all in a time of whole seconds, by period.

    after: returns the end of the period that begins at, or contains, a moment. Raises as
    `allocation_intervals.between`.
    """
    running = _Running()
    periods: list[Window] = []
    amounts: dict[str, list[int]] = {}

    def close_until(at: datetime) -> None:
        start = periods[-1].end if periods else window.start
        while start < window.end and (end := min(after(start), window.end)) <= at:
            for group, amount in running.used_until(end).items():
                group_amounts = amounts.setdefault(group, [])
                group_amounts.extend([0] * (len(periods) - len(group_amounts)))
                group_amounts.append(amount)
            periods.append(Window(start, end))
            start = end

    async for at, ended, started in allocation_intervals.moves(connection, cluster, window, _no_progress):
        close_until(at)
        for changed, sign in ((ended, -1), (started, 1)):
            for interval in changed:
                if not queue or interval.queue == queue:
                    for (name,), devices, _ in usage_report.shares(interval, (key,)):
                        running.change(name, sign * devices, at)
    close_until(window.end)
    for group_amounts in amounts.values():
        group_amounts.extend([0] * (len(periods) - len(group_amounts)))
    return Series(key=key, periods=periods, amounts=amounts)


class _Running:
    """The number of devices that groups hold, and their use since the latest `used_until`.

    Use is counted when a group changes and at each period's end, so unchanged intervals cost nothing in between.
    """

    def __init__(self) -> None:
        self._devices: dict[str, int] = {}
        self._since: dict[str, datetime] = {}
        self._used: dict[str, int] = {}

    def change(self, group: str, devices: int, at: datetime) -> None:
        """Change a group's number of devices from a whole second on."""
        devices_held = self._devices.get(group, 0)
        if devices_held:
            self._use(group, devices_held, at)
        self._since[group] = at
        self._devices[group] = devices_held + devices

    def used_until(self, end: datetime) -> dict[str, int]:
        """Return the non-zero device-seconds by group, and reset them."""
        for group, devices_held in self._devices.items():
            if devices_held:
                self._use(group, devices_held, end)
        used, self._used = self._used, {}
        return used

    def _use(self, group: str, devices_held: int, until: datetime) -> None:
        seconds = accruals.between(self._since[group], until)
        self._since[group] = until
        if seconds:
            self._used[group] = self._used.get(group, 0) + devices_held * seconds


def _no_progress(_done: int, _of: int) -> None:
    """Ignore the progress."""


PLACES = 4
"""Enough decimals to distinguish consecutive whole seconds: a second is 0.000277… hours."""

_HOUR = 3600


def decimal(seconds: int, *, places: int = PLACES) -> str:
    """Format seconds as decimal hours, rounded half to even at the last place."""
    return format_decimal(scaled(seconds, places=places), places=places)


def scaled(seconds: int, *, places: int) -> int:
    """Return seconds as a whole number of 10^-places hours, rounded half to even."""
    return round(Fraction(seconds * 10**places, _HOUR))


def format_decimal(value: int, *, places: int) -> str:
    """Format a whole number of 10^-places as a decimal without trailing zeros."""
    whole, part = divmod(abs(value), 10**places)
    sign = "-" if value < 0 else ""
    return f"{sign}{whole}.{part:0{places}}".rstrip("0").rstrip(".") if part else f"{sign}{whole}"
