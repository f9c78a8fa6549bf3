"""Waiting over time: gang-seconds of each hour, day or month, by queue; for charts."""

from collections.abc import Callable
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from admission.ledger.journal import waiting_hours
from admission.ledger.journal.base import Window
from admission.ledger.reports.time_series import Series
from admission.ledger.reports.usage_report import Key


async def series(
    connection: AsyncConnection,
    cluster: str,
    *,
    window: Window,
    after: Callable[[datetime], datetime],
    queue: str = "",
) -> Series:
    """Return how long gangs waited in one queue or in all, by period. An hour counts where its beginning is.

    The first hour counts as a whole, also where the time begins within it. after: returns the end of the period that
    begins at, or contains, a moment.
    """
    first = window.start.replace(minute=0, second=0, microsecond=0)
    found = await waiting_hours.between(connection, cluster, Window(first, window.end), queue)
    periods: list[Window] = []
    start = window.start
    while start < window.end:
        periods.append(Window(start, min(after(start), window.end)))
        start = periods[-1].end
    amounts: dict[str, list[int]] = {}
    at = 0
    for hour in found:
        while hour.hour >= periods[at].end:
            at += 1
        amounts.setdefault(hour.queue, [0] * len(periods))[at] += hour.seconds
    return Series(key=Key.QUEUE, periods=periods, amounts=amounts)
