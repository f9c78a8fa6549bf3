"""Time travel: who held which devices at a past time, and the accounts of queues, replayed from the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from aiohttp import web

from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Bucket, Placement
from admission.api.values.names import MeterName, QueueName
from admission.dashboard import formatting, pagination, request_context
from admission.dashboard.auth.rbac import LEDGERS
from admission.dashboard.ledger_queries import Extent
from admission.dashboard.request_context import CONTEXT, RIGHTS

STEPS = (
    ("-1 day", -86_400),
    ("-1 hour", -3_600),
    ("-5 min", -300),
    ("+5 min", 300),
    ("+1 hour", 3_600),
    ("+1 day", 86_400),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A queue's account of one meter at a time, in base units."""

    queue: QueueName
    meter: MeterName
    nominal: int
    reserved: int
    used: int


async def past(request: web.Request) -> web.StreamResponse:
    """Show the ledger at a time; without one, the form for it."""
    rights, query, app_context = request[RIGHTS], request.query, request.app[CONTEXT]
    await rights.need(LEDGERS)
    extent = await app_context.ledger.extent()
    at, notes = _moment(query.get("at", ""), extent, app_context.clock())
    if at is None:
        return request_context.shown(request, "past.html", at=None, extent=extent, notes=notes)
    book = await app_context.ledger.at(at)
    queue = pagination.word(query, "queue")
    gangs = [one for one in book.placements.values() if not queue or one.queue == queue]
    gangs.sort(key=lambda one: (one.queue, one.gang))
    page = pagination.page(gangs, query)
    seen = await rights.seen_of({one.gang.partition("/")[0] for one in page.items})
    return request_context.shown(
        request,
        "past.html",
        at=at,
        extent=extent,
        notes=notes,
        page=page,
        hidden={one.gang_uid for one in page.items if not seen.sees(one.gang)},
        nodes=_nodes,
        devices=_devices,
        pods=lambda one: len(one.seats),
        charges=_charges,
        accounts=[one for one in _accounts(book) if not queue or one.queue == queue],
        queue=queue,
        sequence=book.sequence,
        steps=[(label, formatting.instant(at + timedelta(seconds=by))) for label, by in STEPS],
    )


def _moment(text: str, extent: Extent, now: datetime) -> tuple[datetime | None, list[str]]:
    if not text.strip():
        return None, []
    at = formatting.read_moment(text[:40])
    if at is None:
        return None, [f"{text[:40]!r} is no time such as 2026-09-01T12:00."]
    if extent.start is not None and at < extent.start:
        return extent.start, [f"The books begin at {formatting.moment(extent.start)}; what was before is archived."]
    return (at, []) if at <= now else (now, ["That lies ahead; this is how the books stand now."])


def _accounts(book: Book) -> list[Account]:
    found: dict[tuple[QueueName, MeterName], dict[Bucket, int]] = {}
    for (queue, meter, bucket), amount in book.balances.items():
        found.setdefault((queue, meter), {})[bucket] = amount
    return [
        Account(
            queue=queue,
            meter=meter,
            nominal=-of.get(Bucket.ENTITLEMENT, 0),
            reserved=of.get(Bucket.RESERVED, 0),
            used=of.get(Bucket.USED, 0),
        )
        for (queue, meter), of in sorted(found.items())
        if any(of.get(bucket) for bucket in (Bucket.ENTITLEMENT, Bucket.RESERVED, Bucket.USED))
    ]


def _nodes(one: Placement) -> Sequence[str]:
    return sorted({str(seat.node) for seat in one.seats.values()})


def _devices(one: Placement) -> Sequence[str]:
    return sorted(str(given.device) for held in one.holdings.values() for given in held.devices)


def _charges(one: Placement) -> dict[str, int]:
    total: dict[str, int] = {}
    for holding in one.holdings.values():
        for meter, amount in holding.charge.items():
            total[meter] = total.get(meter, 0) + amount
    return total
