"""Use over time: device-hours of each day, hour or month, by queue, namespace, user or class; for charts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from admission.ledger import reports, tenures
from admission.ledger.bases import Window
from admission.ledger.reports import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Device-seconds by group and period. amounts: of each group, one for each of the periods, in their order."""

    key: Key
    periods: Sequence[Window]
    amounts: dict[str, list[int]] = field(default_factory=dict)


async def series(  # noqa: PLR0913 - a question is all of this, by name
    connection: AsyncConnection,
    cluster: str,
    *,
    key: Key,
    window: Window,
    after: Callable[[datetime], datetime],
    queue: str = "",
) -> Series:
    """Return the use of a time of whole seconds, of one queue or of all, in periods.

    after: the end of the period that begins at, or holds, a moment. Raises as `tenures.between`.
    """
    periods: list[Window] = []
    amounts: dict[str, list[int]] = {}
    async for period, held in tenures.by_period(connection, cluster, window, after, _unwatched):
        sums: dict[str, int] = {}
        for tenure in held:
            if queue and tenure.queue != queue:
                continue
            seconds = tenure.seconds(period)
            for (name,), devices, _ in reports.shares(tenure, (key,)):
                sums[name] = sums.get(name, 0) + devices * seconds
        for group, amount in sums.items():
            amounts.setdefault(group, [0] * len(periods)).append(amount)
        periods.append(period)
        for listed in amounts.values():
            listed.extend([0] * (len(periods) - len(listed)))
    return Series(key=key, periods=periods, amounts={group: of for group, of in amounts.items() if any(of)})


def _unwatched(_done: int, _of: int) -> None:
    """Tell nobody how far it is."""
