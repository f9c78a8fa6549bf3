"""Export of the books to other programs: entries, postings, and the use of claims."""

from collections.abc import AsyncIterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api.values import quantities
from admission.ledger.db.tables import postings, transactions
from admission.ledger.journal import base, encoding, measured_usage, read
from admission.ledger.journal.base import Span, Window
from admission.ledger.reports import allocation_intervals
from admission.ledger.reports.allocation_intervals import AllocationInterval, Progress

Row = tuple[Any, ...]
"""The values of a row, in the order of its columns."""


class What(StrEnum):
    """The kind of rows to export."""

    ENTRIES = "entries"
    """Transactions, as they are hashed."""
    POSTINGS = "postings"
    """The lines of transactions."""
    USAGE = "usage"
    """The charge of each claim by meter, for the part of each allocation interval that lies within the time."""
    MEASURED = "measured"
    """What the devices of each claim did, in each recorded time that lies within the time."""


class Type(StrEnum):
    """The type of a column; every value may be None."""

    TEXT = "text"
    JSON = "json"
    """Text that is JSON."""
    INTEGER = "integer"
    """An integer of at most 64 bits."""
    AMOUNT = "amount"
    """An integer of up to 38 digits."""
    MOMENT = "moment"
    """A time in UTC, to the microsecond."""


class Column(NamedTuple):
    """One column."""

    name: str
    type: Type = Type.TEXT


COLUMNS: Mapping[What, tuple[Column, ...]] = {
    What.ENTRIES: (
        Column("cluster"),
        Column("sequence", Type.INTEGER),
        Column("format", Type.INTEGER),
        Column("epoch", Type.INTEGER),
        Column("key"),
        Column("kind"),
        Column("at", Type.MOMENT),
        Column("actor"),
        Column("reason"),
        Column("queue"),
        Column("on_behalf_of"),
        Column("user"),
        Column("gang_uid"),
        Column("gang"),
        Column("seats"),
        Column("holdings"),
        Column("closes"),
        Column("previous"),
        Column("digest"),
    ),
    What.POSTINGS: (
        Column("cluster"),
        Column("sequence", Type.INTEGER),
        Column("line", Type.INTEGER),
        Column("at", Type.MOMENT),
        Column("kind"),
        Column("queue"),
        Column("meter"),
        Column("bucket"),
        Column("amount", Type.AMOUNT),
        Column("claim"),
        Column("gang"),
        Column("user"),
    ),
    What.USAGE: (
        Column("cluster"),
        Column("queue"),
        Column("namespace"),
        Column("claim"),
        Column("claim_uid"),
        Column("gang"),
        Column("gang_uid"),
        Column("user"),
        Column("start", Type.MOMENT),
        Column("end", Type.MOMENT),
        Column("seconds", Type.INTEGER),
        Column("device_count", Type.INTEGER),
        Column("classes", Type.JSON),
        Column("devices", Type.JSON),
        Column("meter"),
        Column("amount", Type.AMOUNT),
        Column("meter_seconds", Type.AMOUNT),
    ),
    What.MEASURED: (
        Column("cluster"),
        Column("sequence", Type.INTEGER),
        Column("line", Type.INTEGER),
        Column("queue"),
        Column("gang_uid"),
        Column("gang"),
        Column("user"),
        Column("claim_uid"),
        Column("claim"),
        Column("start", Type.MOMENT),
        Column("end", Type.MOMENT),
        Column("device_count", Type.INTEGER),
        Column("measured_seconds", Type.AMOUNT),
        Column("used_microseconds", Type.AMOUNT),
        Column("memory_peak_bytes", Type.AMOUNT),
        Column("powered_seconds", Type.AMOUNT),
        Column("energy_millijoules", Type.AMOUNT),
    ),
}
"""The columns of each export. New ones are only added at the end, so that readers by position keep working."""


async def rows(
    connection: AsyncConnection, cluster: str, what: What, window: Window, progress: Progress
) -> AsyncIterator[Row]:
    """Yield the rows of a time, in the order of the chain; rows of use in the order in which the use ended.

    Raises FixError when the time begins in a closed period.
    """
    if what is What.USAGE:
        async for interval in allocation_intervals.between(connection, cluster, window, progress):
            for row in _usage(interval, window):
                yield row
        return
    if what is What.MEASURED:
        async for line in read.streamed(connection, measured_usage.query(cluster, window)):
            yield tuple(line)
        return
    span = await base.span(connection, cluster, window)
    wanted = _entries(cluster, span) if what is What.ENTRIES else _postings(cluster, span)
    async for found in read.streamed(connection, wanted):
        yield tuple(found)
        progress(found.sequence - span.first, span.size)


def _entries(cluster: str, span: Span) -> Select[Any]:
    return (
        select(*(transactions.c[column.name] for column in COLUMNS[What.ENTRIES]))
        .where(transactions.c.cluster == cluster)
        .where(transactions.c.sequence > span.first, transactions.c.sequence <= span.last)
        .order_by(transactions.c.sequence)
    )


def _postings(cluster: str, span: Span) -> Select[Any]:
    line_columns = {"cluster", "sequence", "line", "queue", "meter", "bucket", "amount", "claim"}
    return (
        select(*((postings if name in line_columns else transactions).c[name] for name, _ in COLUMNS[What.POSTINGS]))
        .join_from(postings, transactions)
        .where(postings.c.cluster == cluster)
        .where(postings.c.sequence > span.first, postings.c.sequence <= span.last)
        .order_by(postings.c.sequence, postings.c.line)
    )


def _usage(interval: AllocationInterval, window: Window) -> list[Row]:
    part, seconds = interval.within(window), interval.seconds(window)
    if not seconds:
        return []
    holding = interval.holding
    device_text = (
        interval.cluster,
        interval.queue,
        interval.namespace,
        holding.claim,
        holding.claim_uid,
        interval.gang,
        interval.gang_uid,
    )
    devices = (sum(interval.classes.values()), encoding.text(dict(holding.classes)), _text_of_devices(interval))
    return [
        (*device_text, interval.user, *part, seconds, *devices, meter, amount, quantities.checked(amount * seconds))
        for meter, amount in sorted(holding.charge.items())
    ] or [(*device_text, interval.user, *part, seconds, *devices, None, None, None)]


def _text_of_devices(interval: AllocationInterval) -> str:
    return encoding.text(encoding.of_devices(interval.holding.devices))
