"""Time travel: who held which devices at a past time, and the accounts of queues, replayed from the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from aiohttp import web

from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Bucket, Placement
from admission.api.values import names
from admission.api.values.names import MeterName, QueueName
from admission.dashboard import formatting, pagination, request_context
from admission.dashboard.auth.rbac import LEDGERS
from admission.dashboard.documents import books as documents, encoding
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
        return await request_context.respond(
            request,
            "past.html",
            lambda: documents.Past(
                **request_context.envelope(request), total=0, moment=None, sequence=0, items=[], accounts=[]
            ),
            at=None,
            extent=extent,
            notes=notes,
        )
    book = await app_context.ledger.at(at)
    queue = pagination.word(query, "queue")
    gangs = [placement for placement in book.placements.values() if not queue or placement.queue == queue]
    gangs.sort(key=lambda placement: (placement.queue, placement.gang))
    page = pagination.page(gangs, query, size=request_context.page_size(request, pagination.SIZE))
    visible = await rights.visible_namespaces_or_none({placement.gang.partition("/")[0] for placement in page.items})
    hidden = {placement.gang_uid for placement in page.items if not visible.shows(placement.gang)}
    accounts = [account for account in _accounts(book) if not queue or account.queue == queue]
    return await request_context.respond(
        request,
        "past.html",
        lambda: documents.Past(
            **request_context.listing(request, page),
            moment=at,
            sequence=book.sequence,
            items=[_held(placement, hidden=placement.gang_uid in hidden) for placement in page.items],
            accounts=list(map(_account, accounts)),
        ),
        at=at,
        extent=extent,
        notes=notes,
        page=page,
        hidden=hidden,
        nodes=_nodes,
        devices=_devices,
        pods=lambda placement: len(placement.seats),
        charges=_charges,
        accounts=accounts,
        queue=queue,
        sequence=book.sequence,
        steps=[(label, formatting.instant(at + timedelta(seconds=offset))) for label, offset in STEPS],
    )


def _held(placement: Placement, *, hidden: bool) -> documents.Held:
    return documents.Held(
        gang="" if hidden else placement.gang,
        queue=placement.queue,
        user="" if hidden else placement.user,
        hidden=hidden,
        reserved_at=placement.reserved_at,
        settled=placement.settled,
        pods=len(placement.seats),
        nodes=list(_nodes(placement)),
        charge=encoding.amounts(_charges(placement)),
        devices=list(_devices(placement)),
    )


def _account(account: Account) -> documents.Account:
    return documents.Account(
        queue=account.queue,
        meter=account.meter,
        nominal=str(account.nominal),
        reserved=str(account.reserved),
        used=str(account.used),
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
            nominal=-balances.get(Bucket.ENTITLEMENT, 0),
            reserved=balances.get(Bucket.RESERVED, 0),
            used=balances.get(Bucket.USED, 0),
        )
        for (queue, meter), balances in sorted(found.items())
        if any(balances.get(bucket) for bucket in (Bucket.ENTITLEMENT, Bucket.RESERVED, Bucket.USED))
    ]


def _nodes(placement: Placement) -> Sequence[str]:
    return sorted({str(names.for_people(seat.node)) for seat in placement.seats.values()})


def _devices(placement: Placement) -> Sequence[str]:
    return sorted(
        str(request_device.device) for holding in placement.holdings.values() for request_device in holding.devices
    )


def _charges(placement: Placement) -> dict[str, int]:
    total: dict[str, int] = {}
    for holding in placement.holdings.values():
        for meter, amount in holding.charge.items():
            total[meter] = total.get(meter, 0) + amount
    return total
