"""How long gangs have waited in each queue, by hour, and by day and shape: gang-seconds that the leader counts.

They are for charts and `muster capacity`, and no part of the chain: hours that are older than what charts show are
removed, and a time without a leader counts nothing.
"""

import hashlib
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api.muster.ledger_entries import Waited, WaitingHour, WaitingShape
from admission.api.values.names import QueueName
from admission.ledger.db.tables import waiting_hours, waiting_shapes
from admission.ledger.journal.base import Window


async def write(connection: AsyncConnection, cluster: str, waited: Waited, *, keep_from: datetime) -> None:
    """Replace all that is known of these hours and days, and remove those before `keep_from`."""
    hours, days = waiting_hours.c, waiting_shapes.c
    rows = [
        {"cluster": cluster, "digest": hashlib.sha256(one.shape.encode()).hexdigest(), **one._asdict()}
        for one in waited.shapes
    ]
    for table, at, stated in (
        (waiting_hours, hours.hour, {hour.hour for hour in waited.hours}),
        (waiting_shapes, days.day, {shape.day for shape in waited.shapes}),
    ):
        own = table.c.cluster == cluster
        await connection.execute(delete(table).where(own, at < keep_from))
        await connection.execute(delete(table).where(own, at.in_(sorted(stated))))
    if waited.hours:
        await connection.execute(
            insert(waiting_hours), [{"cluster": cluster, **hour._asdict()} for hour in waited.hours]
        )
    if rows:
        await connection.execute(insert(waiting_shapes), rows)


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


async def shapes_between(connection: AsyncConnection, cluster: str, window: Window) -> list[WaitingShape]:
    """Return the days of a time, in order, with the one in which it begins."""
    columns = waiting_shapes.c
    query = (
        select(columns.queue, columns.namespace, columns.day, columns.shape, columns.seconds)
        .where(*_of_days(cluster, window))
        .order_by(columns.day, columns.queue, columns.namespace, columns.digest)
    )
    return [WaitingShape(*row) for row in await connection.execute(query)]


async def longest(
    connection: AsyncConnection, cluster: str, window: Window, *, most: int
) -> list[tuple[QueueName, str, int]]:
    """Return the shapes that have waited for longest in a queue on the days of a time, and gang-seconds."""
    columns = waiting_shapes.c
    seconds = func.sum(columns.seconds)
    query = (
        select(columns.queue, func.min(columns.shape), seconds)
        .where(*_of_days(cluster, window), columns.shape != "")
        .group_by(columns.queue, columns.digest)
        .order_by(seconds.desc(), columns.queue, columns.digest)
        .limit(most)
    )
    return [(queue, shape, int(total)) for queue, shape, total in await connection.execute(query)]


def _of_days(cluster: str, window: Window) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of the days of a time: shapes are kept by day, so the first one counts as a whole."""
    columns = waiting_shapes.c
    first = window.start.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return columns.cluster == cluster, columns.day >= first, columns.day < window.end
