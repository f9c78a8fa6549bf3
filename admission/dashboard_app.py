"""The composition of the role `dashboard`, a part of the composition root.

The role holds no lease and writes nothing, so any number of processes may run it.
"""

import asyncio
import ipaddress
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting.books import Book
from admission.api.values.names import MeterName, QueueName
from admission.dashboard import ledger_queries, server, tls as dashboard_tls
from admission.dashboard.auth import session
from admission.dashboard.auth.authentication import Proxies
from admission.dashboard.auth.rbac import CachedReviewer
from admission.dashboard.auth.session import Sessions
from admission.dashboard.gang_listings import GangListings
from admission.dashboard.jinja_environment import Templates
from admission.dashboard.ledger_queries import (
    DoneBy,
    Extent,
    Grouping,
    Line,
    Statement,
    Step,
    Transaction,
    Use,
    UsedHours,
    UsedReport,
    WaitedShape,
    Window,
)
from admission.dashboard.request_context import AppContext
from admission.dashboard.server import Listening
from admission.dashboard.view_model import ClusterViews
from admission.errors import LedgerUnavailableError, MusterError
from admission.kube.cache import dashboard_store, reflector
from admission.kube.cache.dashboard_store import DashboardStore
from admission.kube.cache.store import Store
from admission.kube.client.connection import Connection
from admission.kube.listing_reader import ListingReader
from admission.kube.webhook_config.access_review import AccessReviewer
from admission.ledger.audit.point_in_time import BookHistory
from admission.ledger.journal import base, read, waiting_hours
from admission.ledger.reports import time_series, transaction_search, usage_report, utilization, waiting_series
from admission.ledger.reports.statement import StatementLine
from admission.ledger.reports.utilization import Utilization
from admission.ledger.sql_ledger import SqlLedger
from admission.settings import Dashboard, Settings

log = structlog.get_logger(__name__)

RETRY = 2.0
LONGEST_RETRY = 60.0
"""Seconds before the ledger is opened again after a failure."""


class Ledger:
    """The queries of the dashboard's pages to the ledger of a cluster.

    `keep` opens the ledger, again and again while that fails. Until it is open every query raises
    LedgerUnavailableError; pages that show the cluster do not need it.
    """

    def __init__(self, url: str, cluster: str) -> None:
        self._url = url
        self._cluster = cluster
        self._book_history = BookHistory(cluster)
        self._opened: SqlLedger | None = None
        self._trouble = "the books are being opened"

    async def keep(self) -> None:
        """Open the ledger, and keep it open until cancelled."""
        pause = RETRY
        while True:
            try:
                async with SqlLedger.open(self._url, self._cluster) as opened:
                    self._opened = opened
                    await asyncio.Event().wait()
            except MusterError as error:
                self._trouble = str(error)
                log.warning("the books cannot be opened", error=str(error))
            finally:
                self._opened = None
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_RETRY)

    async def extent(self) -> Extent:
        """Return the period that the ledger covers."""
        async with self._connection() as connection:
            start = await base.base(connection, self._cluster)
            return Extent(start.at, await read.latest(connection, self._cluster))

    async def search(self, search: ledger_queries.Search) -> Sequence[Transaction]:
        """Return the transactions that match, the newest first."""
        wanted = transaction_search.Search(
            window=base.Window(*search.window),
            queue=search.queue,
            namespace=search.namespace,
            gang=search.gang,
            gang_uid=search.gang_uid,
            user=search.user,
            kind=search.kind,
            before=search.before,
            limit=search.limit,
        )
        async with self._connection() as connection:
            found = await transaction_search.search(connection, self._cluster, wanted)
        return [Transaction(record.sequence, record.entry) for record in found]

    async def of_gang(self, search: ledger_queries.GangSearch) -> Sequence[Transaction]:
        """Return the latest transactions of a gang, the newest first."""
        async with self._connection() as connection:
            found = await transaction_search.of_gang(
                connection, self._cluster, uid=search.uid, gang=search.gang, since=search.since, limit=search.limit
            )
        return [Transaction(record.sequence, record.entry) for record in found]

    async def statement(self, queue: QueueName, window: Window) -> Statement:
        """Return the statement of a queue's accounts."""
        found = await self._ledger().statement(queue, *window)
        return Statement(
            queue=queue,
            window=window,
            opening={meter: ledger_queries.Amounts(*amounts) for (_, meter), amounts in found.opening.items()},
            lines=[_line(line) for line in found.lines],
            closing={meter: ledger_queries.Amounts(*amounts) for (_, meter), amounts in found.closing.items()},
        )

    async def use(self, grouping: Grouping, window: Window, step: Step, queue: str) -> Use:
        """Return device-seconds by group and period."""
        async with self._connection() as connection:
            found = await time_series.series(
                connection,
                self._cluster,
                key=usage_report.Key(grouping.value),
                window=base.Window(*(at.replace(microsecond=0) for at in window)),
                after=_AFTER[step],
                queue=queue,
            )
        return Use(periods=[Window(*period) for period in found.periods], amounts=found.amounts)

    async def waiting(self, window: Window, step: Step, queue: str) -> Use:
        """Return gang-seconds of waiting by queue and period."""
        async with self._connection() as connection:
            found = await waiting_series.series(
                connection,
                self._cluster,
                window=base.Window(*(at.replace(microsecond=0) for at in window)),
                after=_AFTER[step],
                queue=queue,
            )
        return Use(periods=[Window(*period) for period in found.periods], amounts=found.amounts)

    async def waited(self, window: Window, *, most: int) -> Sequence[WaitedShape]:
        """Return what has waited for longest on the days that begin in a time."""
        async with self._connection() as connection:
            found = await waiting_hours.longest(connection, self._cluster, base.Window(*window), most=most)
        return [WaitedShape(*one) for one in found]

    async def used(self, by: DoneBy, window: Window, queue: str, *, most: int, most_empty: int) -> UsedReport:
        """Return what devices did: the groups with most allocated hours, and the gangs with most idle ones."""
        async with self._connection() as connection:
            groups, total = await self._done(connection, usage_report.Key(by.value), window, queue)
            gangs = groups
            if most_empty and by is not DoneBy.GANG:
                gangs, _ = await self._done(connection, usage_report.Key.GANG, window, queue)
        groups.sort(key=lambda group: (-group.allocated, group.name))
        empty = sorted((gang for gang in gangs if gang.idle), key=lambda gang: (-(gang.idle or 0), gang.name))
        return UsedReport(
            groups=groups[:most], left_out=max(0, len(groups) - most), emptiest=empty[:most_empty], total=total
        )

    async def _done(
        self, connection: AsyncConnection, key: usage_report.Key, window: Window, queue: str
    ) -> tuple[list[UsedHours], UsedHours]:
        """Return what the devices of each group did, of one queue or of all, and of all groups together."""
        keys = list(dict.fromkeys((usage_report.Key.QUEUE, key)))
        whole = base.Window(*(at.replace(microsecond=0) for at in window))
        found = await usage_report.report(connection, [self._cluster], keys, whole, _no_progress)
        measured = await utilization.measured(connection, [self._cluster], keys, whole)
        allocated, did = dict[str, int](), dict[str, Utilization]()
        for group, use in found.rows.items():
            if not queue or group[0] == queue:
                allocated[group[-1]] = allocated.get(group[-1], 0) + use.devices
                did.setdefault(group[-1], Utilization()).join(measured.of(group))
        total = Utilization()
        for one in did.values():
            total.join(one)
        return [_used(name, allocated[name], one) for name, one in did.items()], _used(
            "", sum(allocated.values()), total
        )

    async def at(self, moment: datetime) -> Book:
        """Return the books as they stood at a moment."""
        async with self._connection() as connection:
            return await self._book_history.at(connection, moment)

    def _ledger(self) -> SqlLedger:
        if self._opened is None:
            raise LedgerUnavailableError(self._trouble)
        return self._opened

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection]:
        async with self._ledger().snapshot() as connection:
            yield connection


def _used(name: str, allocated: int, did: Utilization) -> UsedHours:
    return UsedHours(
        name=name,
        allocated=allocated,
        measured=did.measured,
        used=did.used,
        idle=did.idle,
        memory_peak=did.memory_peak,
    )


def _no_progress(_done: int, _of: int) -> None:
    """Ignore the progress."""


def _line(line: StatementLine) -> Line:
    return Line(
        sequence=line.sequence,
        at=line.at,
        kind=line.kind,
        gang=line.gang,
        user=line.user,
        reason=line.reason,
        meter=MeterName(line.meter),
        change=ledger_queries.Amounts(*line.change),
        balance=ledger_queries.Amounts(*line.balance),
    )


def _next_hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


def _next_day(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


def _next_month(at: datetime) -> datetime:
    first = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return (first + timedelta(days=32)).replace(day=1)


_AFTER: dict[Step, Callable[[datetime], datetime]] = {
    Step.HOUR: _next_hour,
    Step.DAY: _next_day,
    Step.MONTH: _next_month,
}


async def serve(settings: Settings, connection: Connection, store: Store) -> None:
    """Serve the pages until cancelled.

    store: of this process. If it is made for other roles, which read no status of queues and gangs, the dashboard
    watches a store of its own. Raises FixError if the settings or the files that they name are wrong.
    """
    dashboard = settings.dashboard
    watched = store if set(store.tables) == set(dashboard_store.WATCHED) else Store(dashboard_store.WATCHED)
    ledger = Ledger(settings.ledger.url, settings.ledger.cluster)
    app_context = await _app_context(settings, connection, watched, ledger)
    files = _files(dashboard)
    tls = await asyncio.to_thread(dashboard_tls.ServedCertificate, files) if files is not None else None
    listening = Listening(host=dashboard.host, port=dashboard.port, context=tls.context if tls is not None else None)
    async with asyncio.TaskGroup() as tasks:
        if watched is not store:
            tasks.create_task(reflector.watch(connection, watched), name="watch what the dashboard shows")
        if tls is not None:
            tasks.create_task(tls.keep(), name="keep the dashboard's certificate fresh")
        tasks.create_task(ledger.keep(), name="keep the books open")
        async with server.serving(listening, app_context) as port:
            log.info("the dashboard listens", host=dashboard.host, port=port, tls=tls is not None)
            await asyncio.Event().wait()


async def _app_context(settings: Settings, connection: Connection, watched: Store, ledger: Ledger) -> AppContext:
    dashboard = settings.dashboard
    return AppContext(
        cluster=settings.ledger.cluster,
        cluster_views=ClusterViews(DashboardStore(watched), time.monotonic),
        gang_listings=GangListings(ListingReader(connection), time.monotonic),
        reviewer=CachedReviewer(AccessReviewer(connection, dashboard.audiences), time.monotonic),
        ledger=ledger,
        sessions=await asyncio.to_thread(_sessions, dashboard),
        templates=await asyncio.to_thread(Templates),
        proxies=_proxies(dashboard),
        clock=lambda: datetime.now(UTC),
    )


def _sessions(dashboard: Dashboard) -> Sessions:
    if dashboard.session_keys is None:
        log.info("sessions end with this process, and hold on no other: dashboard.session_keys is not set")
        keys = [secrets.token_urlsafe(32)]
    else:
        keys = session.read_secrets(Path(dashboard.session_keys))
    return Sessions(keys, timedelta(hours=dashboard.session_hours))


def _proxies(dashboard: Dashboard) -> Proxies | None:
    if dashboard.user_header is None:
        return None
    return Proxies(
        user_header=dashboard.user_header,
        groups_header=dashboard.groups_header or "",
        trusted=tuple(map(ipaddress.ip_network, dashboard.trusted)),
        certified=dashboard.authority is not None,
        client_names=dashboard.client_names,
    )


def _files(dashboard: Dashboard) -> dashboard_tls.Files | None:
    if dashboard.certificate is None or dashboard.key is None:
        return None
    authority = Path(dashboard.authority) if dashboard.authority is not None else None
    return dashboard_tls.Files(certificate=Path(dashboard.certificate), key=Path(dashboard.key), authority=authority)
