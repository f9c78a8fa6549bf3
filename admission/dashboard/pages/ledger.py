"""The ledger: a search for transactions, and statements of queues."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from aiohttp import web

from admission.api.muster.ledger_entries import Kind
from admission.api.values import references
from admission.api.values.names import QueueName
from admission.dashboard import pagination, request_context
from admission.dashboard.auth.rbac import GANGS, LEDGERS, VisibleNamespaces
from admission.dashboard.documents import books as documents
from admission.dashboard.ledger_queries import Search, Transaction
from admission.dashboard.pages import time_window
from admission.dashboard.request_context import CONTEXT, RIGHTS, Media

PAGE_SIZE = 50
MOST_TRANSACTIONS = 10_000
"""The most transactions of one CSV; older ones are asked for by `before`."""
STATEMENT_PAGE_SIZE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTransaction:
    """A transaction. hidden: whether it is of a gang that the visitor may not see."""

    transaction: Transaction
    hidden: bool


async def search(request: web.Request) -> web.StreamResponse:
    """Show the matching transactions, the newest first."""
    rights, query, app_context = request[RIGHTS], request.query, request.app[CONTEXT]
    queue, size = pagination.word(query, "queue"), min(request_context.page_size(request, PAGE_SIZE), MOST_TRANSACTIONS)
    filters = {name: pagination.word(query, name) for name in ("queue", "namespace", "gang", "user", "kind")}
    if not (queue or await rights.may(LEDGERS)):
        return await closed(request)
    await rights.need_account(queue)
    period = time_window.period(query, now=app_context.clock(), extent=await app_context.ledger.extent())
    notes = list(period.notes)
    by_name = filters["namespace"] or filters["gang"] or filters["user"]
    sees_all = await rights.may(GANGS)
    found: Sequence[Transaction] = ()
    if by_name and not sees_all and not await _may_filter(request, filters["namespace"]):
        # Matches would reveal gangs that this visitor may not see by name.
        notes.append("To search by namespace, gang or user, name a namespace whose gangs you may list.")
    else:
        kind = Kind(filters["kind"]) if filters["kind"] in set(Kind) else None
        conditions = {name: filters[name] for name in ("queue", "namespace", "gang", "user")}
        before = pagination.integer(query, "before")
        found = await app_context.ledger.search(
            Search(window=period.window, kind=kind, before=before, limit=size + 1, **conditions)
        )
    page_items = found[:size]
    visible = await rights.visible_namespaces_or_none(
        {namespace for one in page_items for namespace in _namespaces(one.entry.gang, one.entry.reason)}
    )
    shown = [
        FoundTransaction(transaction=for_reader(one, visible), hidden=not visible.shows(one.entry.gang))
        for one in page_items
    ]
    next_before = page_items[-1].sequence if len(found) > size else None
    return await request_context.respond(
        request,
        "ledger.html",
        lambda: documents.TransactionList(
            **request_context.envelope(request),
            items=[documents.transaction(one.transaction, hidden=one.hidden) for one in shown],
            before=next_before,
        ),
        found=shown,
        before=next_before,
        filters=filters,
        kinds=list(Kind),
        period=period,
        notes=notes,
        sees_all=await rights.may(LEDGERS),
    )


async def closed(request: web.Request) -> web.Response:
    """Say that a queue has to be named; programs get the name of the right that is missing."""
    if request_context.media(request) is not Media.HTML:
        await request[RIGHTS].need(LEDGERS)
    return request_context.render(request, "ledger_closed.html", status=403)


def for_reader(transaction: Transaction, visible: VisibleNamespaces) -> Transaction:
    """Return a transaction whose reason names only what the visitor may see; the books have all names."""
    reason = references.conceal(transaction.entry.reason, visible)
    return transaction._replace(entry=replace(transaction.entry, reason=reason))


def _namespaces(gang: str, reason: str) -> set[str]:
    """Return the namespaces of a gang and of what a reason names."""
    return references.mentioned(reason) | ({gang.partition("/")[0]} if gang else set())


async def _may_filter(request: web.Request, namespace: str) -> bool:
    return bool(namespace) and namespace in await request[RIGHTS].visible_namespaces_or_none({namespace})


async def statement(request: web.Request) -> web.StreamResponse:
    """Show the movements on a queue's account, each with the balance after it."""
    rights, query, app_context = request[RIGHTS], request.query, request.app[CONTEXT]
    queue = request.match_info["queue"]
    await rights.need_account(queue)
    period = time_window.period(query, now=app_context.clock(), extent=await app_context.ledger.extent())
    found = await app_context.ledger.statement(QueueName(queue), period.window)
    page = pagination.page(
        list(reversed(found.lines)), query, size=request_context.page_size(request, STATEMENT_PAGE_SIZE)
    )
    seen = await rights.visible_namespaces_or_none(
        {namespace for line in page.items for namespace in _namespaces(line.gang, line.reason)}
    )
    lines = [replace(line, reason=references.conceal(line.reason, seen)) for line in page.items]
    hidden = {line.sequence for line in page.items if not seen.shows(line.gang)}
    opening, closing = documents.balances(found)
    return await request_context.respond(
        request,
        "statement.html",
        lambda: documents.Statement(
            **request_context.listing(request, page),
            queue=queue,
            start=period.window.start,
            end=period.window.end,
            opening=opening,
            closing=closing,
            items=[documents.movement(line, hidden=line.sequence in hidden) for line in lines],
        ),
        statement=found,
        page=replace(page, items=lines),
        hidden=hidden,
        period=period,
        notes=period.notes,
        queue=queue,
    )
