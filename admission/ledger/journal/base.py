"""The first row of a cluster's books, and the position of a moment in their chain.

The rows of a cluster begin with its first transaction, or after the latest closing, which archived the rows up to it
and carried the state there forward.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Book
from admission.api.values.names import MeterName, QueueName
from admission.errors import FixError
from admission.ledger.db.tables import balances, closings, clusters, transactions
from admission.ledger.journal import carry_forward, read

_LAST_MICROSECOND = 999_999
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Base:
    """The end of the archived part, which the oldest row follows.

    sequence: of the last archived transaction; 0 where none is archived. at: the time up to which rows were archived,
    None where none was. archive: the name of the latest archive file.
    """

    sequence: int = 0
    at: datetime | None = None
    archive: str = ""


class Window(NamedTuple):
    """The half-open time [start, end)."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a chain: the transactions after `first`, through `last`."""

    first: int
    last: int

    @property
    def size(self) -> int:
        return max(0, self.last - self.first)


async def base(connection: AsyncConnection, cluster: str) -> Base:
    """Return where the rows of a cluster begin."""
    latest = (
        select(closings.c.sequence, closings.c.marked, closings.c.archive)
        .where(closings.c.cluster == cluster)
        .order_by(closings.c.sequence.desc())
        .limit(1)
    )
    row = (await connection.execute(latest)).one_or_none()
    return Base() if row is None else Base(row.sequence, row.marked, row.archive)


async def carried(connection: AsyncConnection, cluster: str) -> Book:
    """Return the book at which the rows begin. Raises LedgerCorruptError when it cannot be read."""
    closing = await carry_forward.latest(connection, cluster)
    return Book() if closing is None else closing.book


async def span(connection: AsyncConnection, cluster: str, window: Window) -> Span:
    """Return the transactions of a time.

    Raises FixError when a part of it lies in a closed period, whose rows were archived.
    """
    start = await base(connection, cluster)
    if start.at is not None and window.start < start.at:
        raise FixError(
            f"--from {_utc(window.start)} lies in a period that was closed: the books of cluster {cluster} begin at"
            f" {_utc(start.at)}, and what was before stands in the archive {start.archive}; begin at that time or"
            " later, or read the archive (docs/closing.md says how)"
        )
    return Span(
        max(start.sequence, await last_before(connection, cluster, window.start)),
        max(start.sequence, await last_before(connection, cluster, window.end)),
    )


async def through(connection: AsyncConnection, cluster: str, at: datetime) -> int:
    """Return the sequence of the last transaction at or before a moment; at least that of the base."""
    start = await base(connection, cluster)
    return max(start.sequence, await last_before(connection, cluster, at + _MICROSECOND))


async def known_clusters(connection: AsyncConnection) -> list[str]:
    """Return the clusters whose books are in this database."""
    return sorted((await connection.execute(select(clusters.c.cluster))).scalars())


async def accounts(connection: AsyncConnection, names: Sequence[str]) -> set[QueueMeter]:
    """Return the queues and meters that have an account in the books of some clusters."""
    query = select(balances.c.queue, balances.c.meter).where(balances.c.cluster.in_(names)).distinct()
    return {(QueueName(queue), MeterName(meter)) for queue, meter in await connection.execute(query)}


async def head(connection: AsyncConnection, cluster: str) -> int:
    """Return the sequence of the last transaction; 0 when there is none."""
    found = await read.head(connection, cluster)
    return 0 if found is None else found.sequence


async def last_before(connection: AsyncConnection, cluster: str, at: datetime) -> int:
    """Return the sequence of the last transaction before a time: one less than the first at or after it."""
    at_or_after = (transactions.c.cluster == cluster) & (transactions.c.at >= at)
    times = select(transactions.c.at).where(at_or_after).order_by(transactions.c.at).limit(1)
    next_ = (await connection.execute(times)).scalar_one_or_none()
    if next_ is None:
        return await head(connection, cluster)
    # Times ascend with sequences, except that a mark has the time of its whole second, so rows before it may be later
    # within that second.
    same_second = transactions.c.at <= next_.replace(microsecond=_LAST_MICROSECOND)
    first = select(func.min(transactions.c.sequence)).where(at_or_after, same_second)
    return int((await connection.execute(first)).scalar_one()) - 1


def _utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
