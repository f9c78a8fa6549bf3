"""The use of a time by namespace and creator, for the shares of the members of queues."""

from collections import defaultdict
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting import accruals
from admission.api.muster.ledger_entries import MemberUsageInterval
from admission.api.values.names import MeterName, QueueName
from admission.ledger.journal import base as journal_base
from admission.ledger.journal.base import Window
from admission.ledger.reports import allocation_intervals

_Key = tuple[QueueName, str, str, MeterName]


async def member_usage(
    connection: AsyncConnection, cluster: str, window: Window, step: timedelta
) -> list[MemberUsageInterval]:
    """Return the meter-seconds of each step of a time, oldest first; of a closed period nothing. Zeros are left out.

    window: is cut to whole seconds. Use counts from the settlement of a claim.
    """
    base = await journal_base.base(connection, cluster)
    start, end = (accruals.floor_to_second(moment) for moment in window)
    if base.at is not None:
        start = max(start, base.at)
    found: list[MemberUsageInterval] = []

    def after(moment: datetime) -> datetime:
        return moment + step

    async for period, intervals in allocation_intervals.by_period(
        connection, cluster, Window(start, max(start, end)), after, _no_progress
    ):
        used: defaultdict[_Key, int] = defaultdict(int)
        for interval in intervals:
            for meter, amount in interval.holding.charge.items():
                key = interval.queue, interval.gang.partition("/")[0], interval.user, meter
                used[key] += amount * interval.seconds(period)
        found += [
            MemberUsageInterval(
                queue=queue,
                namespace=namespace,
                user=user,
                meter=meter,
                start=period.start,
                end=period.end,
                seconds=seconds,
            )
            for (queue, namespace, user, meter), seconds in used.items()
            if seconds
        ]
    return found


def _no_progress(_done: int, _of: int) -> None:
    """Ignore the progress: the caller shows none."""
