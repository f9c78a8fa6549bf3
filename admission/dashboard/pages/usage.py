"""Use and waiting over time, as charts: device-hours by queue, class, namespace or user, and gang-hours by queue."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple
from urllib.parse import quote, unquote

from aiohttp import web

from admission.dashboard import ledger_queries, pagination, request_context, usage_chart
from admission.dashboard.auth.rbac import LEDGERS, VisibleNamespaces
from admission.dashboard.documents import books as documents
from admission.dashboard.ledger_queries import Grouping, Measure, Step, Window
from admission.dashboard.pages import ledger, time_window
from admission.dashboard.pages.time_window import Period
from admission.dashboard.request_context import CONTEXT, RIGHTS
from admission.dashboard.usage_chart import Chart
from admission.errors import FixError, RetryError

MOST_BARS = 400
USE_DAYS, WAITING_DAYS = 14, 7


async def use(request: web.Request) -> web.StreamResponse:
    """Show device-hours over time, by queue, class, namespace or user."""
    queue, app_context = pagination.word(request.query, "queue"), request.app[CONTEXT]
    if not await may_see(request, queue):
        return await ledger.closed(request)
    groupings = _groupings(await request[RIGHTS].visible_namespaces_or_none(()))
    by = request.query.get("by", "")
    grouping = Grouping(by) if by in groupings else Grouping.QUEUE
    period, step = await _period(request, USE_DAYS)
    found = await app_context.ledger.use(grouping, period.window, step, queue)
    return await request_context.respond(
        request,
        "use.html",
        lambda: documents.DeviceHours(
            **request_context.envelope(request), by=grouping, step=step, items=documents.use(found)
        ),
        **_shown(request, found, period, step, Measure.USE),
        grouping=grouping,
        groupings=groupings,
    )


async def waiting(request: web.Request) -> web.StreamResponse:
    """Show how long gangs have waited over time, by queue."""
    queue, app_context = pagination.word(request.query, "queue"), request.app[CONTEXT]
    if not await may_see(request, queue):
        return await ledger.closed(request)
    period, step = await _period(request, WAITING_DAYS)
    found = await app_context.ledger.waiting(period.window, step, queue)
    return await request_context.respond(
        request,
        "use.html",
        lambda: documents.WaitingTime(**request_context.envelope(request), step=step, items=documents.use(found)),
        **_shown(request, found, period, step, Measure.WAITING),
        grouping=Grouping.QUEUE,
        groupings=[],
    )


async def may_see(request: web.Request, queue: str) -> bool:
    """Return whether the visitor may see the books; False where a queue has to be named. Raises RefusedError."""
    rights = request[RIGHTS]
    if not (queue or await rights.may(LEDGERS)):
        return False
    await rights.need_account(queue)
    return True


async def _period(request: web.Request, days: int) -> tuple[Period, Step]:
    """Return the period and the step that are asked for. days: of the period without a choice."""
    app_context = request.app[CONTEXT]
    extent = await app_context.ledger.extent()
    period = time_window.period(request.query, now=app_context.clock(), extent=extent, days=days)
    return period, _step(request.query.get("step", ""), period)


def _shown(
    request: web.Request, found: ledger_queries.Use, period: Period, step: Step, measure: Measure
) -> Mapping[str, object]:
    """Return what the template shows of either."""
    query = request.query
    top = pagination.integer(query, "top")
    hidden = [unquote(key) for key in query["hide"].split(",", MOST_BARS)] if "hide" in query else []
    shown = top if top in usage_chart.TOPS else usage_chart.SERIES
    return {
        "chart": usage_chart.chart(found, measure=measure, top=shown, hidden=hidden),
        "toggled": partial(_toggled, hidden),
        "tops": usage_chart.TOPS,
        "lasts": time_window.LASTS,
        "period": period,
        "notes": period.notes,
        "queue": pagination.word(query, "queue"),
        "step": step,
        "steps": list(Step),
        "measure": measure,
    }


def _toggled(hidden: Sequence[str], key: str) -> str:
    """Return the value of `hide` by which one group more is left out of the drawing, or shown again."""
    left = [one for one in hidden if one != key] if key in hidden else [*hidden, key]
    return ",".join(quote(one, safe="") for one in left)


def _groupings(seen: VisibleNamespaces) -> list[Grouping]:
    """Return the groupings that may be shown: by namespace and user only if the visitor may see all gangs."""
    return list(Grouping) if seen.all else [Grouping.QUEUE, Grouping.CLASS]


def _step(text: str, period: Period) -> Step:
    """Return the requested step unless it gives too many bars; else one that suits the period."""
    length = period.window.end - period.window.start
    hours = length.total_seconds() / 3_600
    if text in set(Step) and (Step(text) is not Step.HOUR or hours <= MOST_BARS):
        return Step(text)
    return Step.HOUR if hours <= 48 else Step.DAY


# The last day, on the overview.

LAST_DAY = timedelta(hours=24)
TOP = 3


class TitledChart(NamedTuple):
    """A chart of the last day. more: the address of the page with longer times."""

    title: str
    more: str
    chart: Chart


@dataclass(frozen=True, slots=True, kw_only=True)
class LastDay:
    """Use and waiting of the last day by hour and queue, and their charts. trouble: why they cannot be read."""

    use: ledger_queries.Use = field(default_factory=ledger_queries.Use)
    waiting: ledger_queries.Use = field(default_factory=ledger_queries.Use)
    charts: Sequence[TitledChart] = ()
    trouble: str = ""


def _charts(use: ledger_queries.Use, waiting: ledger_queries.Use) -> Sequence[TitledChart]:
    """Return both charts, which add up a thousand queues in a large cluster."""
    half = partial(usage_chart.chart, top=TOP, width=usage_chart.HALF)
    return (
        TitledChart("Use in the last day", "/ledger/use", half(use)),
        TitledChart("Waiting in the last day", "/ledger/waiting", half(waiting, measure=Measure.WAITING)),
    )


@dataclass(slots=True)
class LastDays:
    """The last day as it was read last, for all visitors who may see all books.

    It depends on the books and on `minute` alone, so it is read once a minute.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    minute: datetime | None = None
    found: LastDay = field(default_factory=LastDay)


LAST_DAYS = web.AppKey("last days", LastDays)


async def last_day(request: web.Request) -> LastDay | None:
    """Return use and waiting of the last day; None for a visitor who may not see all books."""
    if not await request[RIGHTS].may(LEDGERS):
        return None
    app_context, kept = request.app[CONTEXT], request.app[LAST_DAYS]
    minute = app_context.clock().replace(second=0, microsecond=0)
    async with kept.lock:
        if kept.minute != minute:
            kept.found = await _read(request, Window(minute - LAST_DAY, minute))
            kept.minute = minute
        return kept.found


async def _read(request: web.Request, window: Window) -> LastDay:
    """Return the last day; a ledger that cannot be read leaves the overview as it is."""
    books = request.app[CONTEXT].ledger
    try:
        extent = await books.extent()
        if extent.start is not None:
            window = window._replace(start=min(window.end, max(window.start, extent.start)))
        use = await books.use(Grouping.QUEUE, window, Step.HOUR, "")
        waiting = await books.waiting(window, Step.HOUR, "")
    except (FixError, RetryError) as error:
        return LastDay(trouble=str(error))
    return LastDay(use=use, waiting=waiting, charts=await asyncio.to_thread(_charts, use, waiting))
