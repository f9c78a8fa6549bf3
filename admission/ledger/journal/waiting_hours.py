"""How long gangs have waited in each queue, by hour: gang-seconds, which the leader counts and writes.

They are for charts and no part of the chain: hours that are older than what charts show are removed, and a time without
a leader counts nothing.
"""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api.muster.ledger_entries import WaitingHour
from admission.ledger.db.tables import waiting_hours
from admission.ledger.journal.base import Window


async def write(
    connection: AsyncConnection, cluster: str, hours: Sequence[WaitingHour], *, keep_from: datetime
) -> None:
    """Replace all that is known of these hours, and remove those before `keep_from`."""
    own = waiting_hours.c.cluster == cluster
    stated = sorted({hour.hour for hour in hours})
    await connection.execute(delete(waiting_hours).where(own, waiting_hours.c.hour < keep_from))
    await connection.execute(delete(waiting_hours).where(own, waiting_hours.c.hour.in_(stated)))
    if hours:
        await connection.execute(insert(waiting_hours), [{"cluster": cluster, **hour._asdict()} for hour in hours])


async def between(connection: AsyncConnection, cluster: str, window: Window, queue: str = "") -> list[WaitingHour]:
    """Return the hours that begin in a time, in order, of one queue or of all."""
    columns = waiting_hours.c
    query = select(columns.queue, columns.hour, columns.seconds).where(
        columns.cluster == cluster, columns.hour >= window.start, columns.hour < window.end
    )
    if queue:
        query = query.where(columns.queue == queue)
    rows = await connection.execute(query.order_by(columns.hour, columns.queue))
    return [WaitingHour(*row) for row in rows]
