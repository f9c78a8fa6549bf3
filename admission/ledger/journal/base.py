"""Where the rows of a cluster's books begin, and where in their chain a moment lies.

The books of a cluster begin with its first transaction, or after the latest closing: rows up to that one were archived,
and what stood there was carried forward.
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
    """What the oldest row follows.

    sequence: of the last transaction that is not among the rows; 0 where all are. at: the time up to which rows were
    archived, None where none was. archive: the name of the file with the latest of them.
    """

    sequence: int = 0
    at: datetime | None = None
    archive: str = ""


class Window(NamedTuple):
    """A time, from start on and before end."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a chain: the transactions after `first`, up to and with `last`."""

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
    """Return what was open where the rows begin, and every balance. Raises LedgerCorruptError when it is unreadable."""
    closing = await carry_forward.latest(connection, cluster)
    return Book() if closing is None else closing.book


async def span(connection: AsyncConnection, cluster: str, window: Window) -> Span:
    """Return the transactions of a time.

    Raises FixError when some of that time was closed, and its rows archived.
    """
    begun = await base(connection, cluster)
    if begun.at is not None and window.start < begun.at:
        raise FixError(
            f"--from {_shown(window.start)} lies in a period that was closed: the books of cluster {cluster} begin at"
            f" {_shown(begun.at)}, and what was before stands in the archive {begun.archive}; begin at that time or"
            " later, or read the archive (docs/closing.md says how)"
        )
    return Span(
        max(begun.sequence, await _before(connection, cluster, window.start)),
        max(begun.sequence, await _before(connection, cluster, window.end)),
    )


async def through(connection: AsyncConnection, cluster: str, at: datetime) -> int:
    """Return the sequence of the last transaction up to and with a moment; not less than where the rows begin."""
    begun = await base(connection, cluster)
    return max(begun.sequence, await _before(connection, cluster, at + _MICROSECOND))


async def known(connection: AsyncConnection) -> list[str]:
    """Return the clusters that have books here."""
    return sorted((await connection.execute(select(clusters.c.cluster))).scalars())


async def accounts(connection: AsyncConnection, names: Sequence[str]) -> set[QueueMeter]:
    """Return the queues and meters that have an account in the books of some clusters."""
    named = select(balances.c.queue, balances.c.meter).where(balances.c.cluster.in_(names)).distinct()
    return {(QueueName(queue), MeterName(meter)) for queue, meter in await connection.execute(named)}


async def head(connection: AsyncConnection, cluster: str) -> int:
    """Return the sequence of the last transaction; 0 when there is none."""
    found = await read.head(connection, cluster)
    return 0 if found is None else found.sequence


async def _before(connection: AsyncConnection, cluster: str, at: datetime) -> int:
    """Return the sequence of the last transaction before a time: the one ahead of the first that is not."""
    due = (transactions.c.cluster == cluster) & (transactions.c.at >= at)
    times = select(transactions.c.at).where(due).order_by(transactions.c.at).limit(1)
    next_ = (await connection.execute(times)).scalar_one_or_none()
    if next_ is None:
        return await head(connection, cluster)
    # The time of the books never goes back by a second, but a mark has the whole second in which it was made.
    same_second = transactions.c.at <= next_.replace(microsecond=_LAST_MICROSECOND)
    first = select(func.min(transactions.c.sequence)).where(due, same_second)
    return int((await connection.execute(first)).scalar_one()) - 1


def _shown(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
