"""The composition root: reads the settings, builds the adapters, and runs the roles until it is stopped.

The whole wiring is this page. Every long-running task belongs to the one TaskGroup in `serve` and has a name. With
several workers this process is the first of them; the others run `work`, which serves the webhook only.
"""

import asyncio
import importlib
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Protocol, TypeVar

import msgspec
import structlog
import tenacity

from admission import process_parts, resources, webhook_identity
from admission.cel.syntax import parser
from admission.dra import compatibility
from admission.errors import FixError, ForbiddenError, RetryError
from admission.kube import crd_installer, leader_election
from admission.kube.cache import dashboard_store, reflector, watched_resources
from admission.kube.cache.store import Store
from admission.kube.client.connection import Connection
from admission.kube.client.credentials import ClusterSelection
from admission.kube.server_version import Versions
from admission.podpolicy.admission import Rules
from admission.registration_app import Registrar
from admission.review import reviewer
from admission.review.caches import ReviewCaches
from admission.settings import Heads, Ledger, Settings
from admission.settings.live import LiveSettings
from admission.telemetry import logs
from admission.telemetry.collectors import Watched
from admission.telemetry.metrics import Metrics
from admission.telemetry.tracing import Traces, exporting
from admission.webhook import handler, listener, server, workers
from admission.webhook.tls import rotation as tls_rotation
from admission.webhook.tls.certificate import Certificate
from admission.webhook.worker_ipc import Task, WorkerChannel
from admission.webhook.workers import WorkerCallbacks, WorkerPool

Value = TypeVar("Value")

log = structlog.get_logger()

_now = partial(datetime.now, UTC)

ROLES_PAUSE, ROLES_READ_WITHIN = 0.5, 10.0
"""Seconds between two tries, and after which a right is believed to be missing: an API server that has just started
refuses everything until it has read its roles."""

RETRY = 2.0
"""Seconds before a role that lost a dependency is started again."""

WORKER = (sys.executable, "-m", "admission.cli.serve.worker")
"""The command of a further worker."""


class ReviewState:
    """The caches of the webhook's reviews. The webhook opens once they are filled, so no review waits for that."""

    def __init__(self) -> None:
        self.caches = ReviewCaches()
        self.open = asyncio.Event()

    async def prepare(self, store: Store) -> None:
        """Fill the caches that every review uses, off the event loop."""
        await asyncio.to_thread(parser.prepare)
        await store.wait_synced()
        try:
            self.caches = await asyncio.to_thread(reviewer.warm_caches, store.snapshot())
        except Exception:  # a fault in one object must not keep the webhook closed
            log.exception("the first review could not be prepared for")
        self.open.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts(process_parts.Parts):
    """The parts of the process that its roles share, and those of the webhook."""

    link: WorkerChannel | None = None
    """The channel to the first of several workers; None if this process is the first or only one."""
    review_state: ReviewState = field(default_factory=ReviewState)


class Reloader(Protocol):
    """Reads settings that have changed."""

    async def follow(self, live: LiveSettings) -> None:
        """Apply every change of the settings to `live`, until cancelled."""
        ...


class _StoppedError(Exception):
    """Ends the TaskGroup when the process is stopped."""


async def work(end: socket.socket, *, stop: asyncio.Event) -> None:
    """Run a further worker as the first process commands, until `stop` is set or that process is gone.

    end: this worker's end of the socket between the two.
    """
    link = await WorkerChannel.from_socket(end)
    structlog.contextvars.bind_contextvars(worker=link.task.number)
    settings = msgspec.json.decode(link.task.settings, type=Settings)
    await serve(settings, stop=stop, link=link)


async def serve(
    settings: Settings, *, stop: asyncio.Event, link: WorkerChannel | None = None, reloader: Reloader | None = None
) -> None:
    """Run the roles of the settings until `stop` is set. link: to the first process, if this is a further worker.

    Raises FixError if the installation or the settings are wrong, ClusterUnavailableError if the API server does not
    answer at the start. While the API server or the database is down later, the roles wait.
    """
    as_json = None if settings.log_format == "auto" else settings.log_format == "json"
    logs.configure(level=settings.log_level.upper(), as_json=as_json)
    if settings.webhook.workers > 1:
        structlog.contextvars.bind_contextvars(worker=workers.FIRST)
    place = ClusterSelection(kubeconfig=Path(settings.kubeconfig) if settings.kubeconfig else None)
    live = LiveSettings(settings)
    async with (
        exporting(settings.tracing.endpoint, sampled=settings.tracing.sampled, roles=settings.roles) as traces,
        Connection(place) as connection,
    ):
        parts = await _parts(live, connection, link, traces)
        live.subscribe(lambda now: logs.set_level(now.log_level))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_stopped(stop), name="wait for the signal to stop")
                tasks.create_task(reflector.watch(connection, parts.store), name="watch the cluster")
                tasks.create_task(reflector.until_synced(parts.store), name="wait for the cluster's objects")
                if "dashboard" in settings.roles:
                    tasks.create_task(_dashboard(parts), name="dashboard")
                if link is not None:
                    tasks.create_task(_first_worker_ended(link, live), name="wait for the end of the first worker")
                if reloader is not None:
                    tasks.create_task(reloader.follow(live), name="follow the settings")
                if "webhook" in settings.roles:
                    tasks.create_task(parts.review_state.prepare(parts.store), name="prepare for the first review")
                    tasks.create_task(_restart_on_failure(_webhook, parts), name="webhook")
                else:
                    tasks.create_task(_probes_and_metrics(parts), name="serve probes and metrics")
                if "controller" in settings.roles:
                    tasks.create_task(_registration(parts), name="keep the webhook registered")
                    tasks.create_task(_restart_on_failure(_controller, parts), name="controller")
                    tasks.create_task(parts.versions.keep(connection), name="watch the version of Kubernetes")
        except* _StoppedError:
            log.info("stopped")


async def prepare(connection: Connection, settings: Settings) -> None:
    """Install the CRDs, if that is set, and the namespace of the lease. Raises ForbiddenError for a missing right."""
    attempts = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception_type(ForbiddenError),
        wait=tenacity.wait_fixed(ROLES_PAUSE),
        stop=tenacity.stop_after_delay(ROLES_READ_WITHIN),
        reraise=True,
    )
    async for attempt in attempts:
        with attempt:
            if settings.install_crds:
                await crd_installer.install(connection, sorted((resources.config() / "crds").glob("*.yaml")))
            await leader_election.ensure(connection, settings.lease.namespace)


async def _parts(
    live: LiveSettings, connection: Connection, link: WorkerChannel | None, traces: Traces | None
) -> Parts:
    settings, version, user = live.now, await connection.version(), await connection.who_am_i()
    if version < (1, 34):
        raise FixError(f"{connection.server} is Kubernetes {version[0]}.{version[1]}; resource.k8s.io/v1 needs 1.34")
    loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    log.info("connected", server=connection.server, version=f"{version[0]}.{version[1]}", user=user, loop=loop)
    store = _store(settings)
    registrar = Registrar(settings, connection, store, user=user)
    if "controller" in settings.roles:
        registrar.check()
        await prepare(connection, settings)
    versions = Versions(compatibility.named(str(settings.controller.profile)))
    return Parts(
        live=live,
        connection=connection,
        store=store,
        versions=versions,
        metrics=Metrics(
            worker=link.task.number if link is not None else workers.FIRST,
            watched=lambda: map(Watched._make, store.watch_statistics()),
            allocations=settings.metrics.allocations if "controller" in settings.roles else 0,
        ),
        traces=traces,
        user=user,
        registrar=registrar,
        link=link,
    )


def _store(settings: Settings) -> Store:
    """Return a store of the kinds that the roles read; a webhook or a dashboard alone reads fewer than a controller."""
    alone = {"webhook": watched_resources.ADMISSION, "dashboard": dashboard_store.WATCHED}
    [role, *others] = set(settings.roles)
    return Store(alone[role]) if role in alone and not others else Store()


async def _dashboard(parts: Parts) -> None:
    """Serve the dashboard."""
    dashboard_app = await _imported("admission.dashboard_app")
    await dashboard_app.serve(parts.settings, parts.connection, parts.store)


async def _registration(parts: Parts) -> None:
    """Keep the webhook's authorities, paths and configurations up to date."""
    has_webhook = "webhook" in parts.settings.roles
    await parts.registrar.keep(parts.review_state.open.wait if has_webhook else parts.store.wait_synced)


async def _webhook(parts: Parts) -> None:
    """Serve the webhook."""
    settings = parts.settings.webhook
    source = webhook_identity.certificates(parts.settings, parts.connection)
    if parts.link is not None:
        # The kernel hands a part of the connections to every process that listens, whether it can answer or not.
        await parts.review_state.open.wait()
    elif settings.workers > 1 and settings.port:
        await listener.ensure_free(server.address(_listening(parts)))
    async with workers.started(settings.workers, WORKER) as pool:
        certificate = await _first(parts, source.current, "its certificate")
        # A worker without paths would answer 404 to reviews that the other workers answer.
        paths = await _first(parts, partial(webhook_identity.paths, parts.settings, parts.connection), "its paths")
        async with (
            server.serving(_listening(parts), _handlers(parts, pool), certificate, paths.known) as running,
            asyncio.TaskGroup() as tasks,
        ):
            log.info("the webhook listens", host=settings.host, port=running.port)
            parts.registrar.listens(running.port)
            tasks.create_task(paths.keep(), name="keep the known paths fresh")
            rotating = tls_rotation.keep(
                source, certificate, use=partial(_show, running), failure="the webhook's certificate is not renewed"
            )
            tasks.create_task(rotating, name="keep the certificate fresh")
            callbacks = _worker_callbacks(parts, running)
            tasks.create_task(pool.run(callbacks), name="keep the workers running")
            tasks.create_task(_send_tasks(parts, pool, callbacks), name="tell the workers of settings")
            if parts.link is not None:
                tasks.create_task(parts.link.report(running.waiting_for, parts.metrics.tallies), name="report")


async def _show(running: server.Server, certificate: Certificate) -> None:
    await running.renew(certificate)
    log.info("the webhook shows a new certificate", expires=certificate.expires.isoformat())


async def _first(parts: Parts, current: Callable[[], Awaitable[Value]], what: str) -> Value:
    """Wait for a certificate or for paths. Probes are answered meanwhile, since a controller may start late."""
    if "controller" in parts.settings.roles:
        await parts.registrar.secret_kept.wait()
    with suppress(RetryError):
        return await current()
    waiting = server.Handlers(waiting_for=lambda: [what], metrics=parts.metrics.render)
    async with server.serving_probes(_listening(parts), waiting):
        return await tls_rotation.first(current, what)


def _handlers(parts: Parts, pool: WorkerPool) -> server.Handlers:
    store, metrics, review_state = parts.store, parts.metrics, parts.review_state
    controller = parts.settings.controller
    rules = Rules(controller=controller.user or parts.user, schedulers=frozenset(controller.schedulers))

    def metrics_page(waiting: Sequence[str], expiries: Mapping[str, datetime]) -> tuple[bytes, str]:
        metrics.set_ready_workers(int(review_state.open.is_set()) + pool.ready)
        return metrics.render(waiting, expiries)

    def waiting_for() -> list[str]:
        waiting = [] if review_state.open.is_set() else ["its policies" if store.synced else "the cluster's objects"]
        return waiting + pool.waiting_for()

    return server.Handlers(
        mutate=lambda review: reviewer.mutate(review, store, caches=review_state.caches),
        validate=lambda review: reviewer.validate(review, store, rules=rules, caches=review_state.caches),
        hold=lambda review: reviewer.hold(review, store, caches=review_state.caches),
        prove=handler.prove,
        waiting_for=waiting_for,
        metrics=metrics_page,
        observe=metrics.record_review,
        refuse=metrics.record_refusal,
        trace=parts.traces.review if parts.traces is not None else None,
        shared_page=parts.link.page_request if parts.link is not None else None,
    )


def _listening(parts: Parts) -> server.Settings:
    settings, metrics_settings = parts.settings.webhook, parts.settings.metrics
    return server.Settings(
        host=settings.host,
        port=settings.port,
        plain_host=metrics_settings.host,
        plain_port=metrics_settings.port,
        connections=settings.connections,
        reviews=settings.reviews,
        body_bytes=settings.body_bytes,
        linger=timedelta(seconds=settings.linger),
        shared=settings.workers > 1 or parts.link is not None,
    )


def _worker_callbacks(parts: Parts, running: server.Server) -> WorkerCallbacks:
    """Return what this process does for further workers: it gives them their settings, and takes their reports.

    Workers serve the port of this process. They neither read the ledger nor publish its heads, so they are not given
    the credentials for these.
    """

    def worker_settings() -> Settings:
        settings, replace = parts.settings, msgspec.structs.replace
        return replace(
            settings,
            roles=("webhook",),
            install_crds=False,
            webhook=replace(settings.webhook, port=running.port, workers=1),
            metrics=replace(settings.metrics, port=None),
            ledger=Ledger(),
            heads=Heads(),
        )

    return WorkerCallbacks(
        task=lambda number: Task(number=number, settings=msgspec.Raw(msgspec.json.encode(worker_settings()))),
        page=running.page,
        on_report=parts.metrics.add_report,
        on_exit=parts.metrics.count_lost_worker,
    )


async def _send_tasks(parts: Parts, pool: WorkerPool, callbacks: WorkerCallbacks) -> None:
    """Send changed settings to the workers."""
    while True:
        await parts.live.change()
        await pool.send_tasks(callbacks)


async def _probes_and_metrics(parts: Parts) -> None:
    """Serve probes and metrics in a process without the webhook.

    A controller is ready if it could lead; whether it leads is a metric. A dashboard is ready without the ledger, too.
    """

    def waiting_for() -> list[str]:
        needs_books = "controller" in parts.settings.roles
        has_ledger = not needs_books or parts.ledger_opened.is_set()
        ready = {"the cluster's objects": parts.store.synced, "the ledger": has_ledger}
        return [what for what, is_ready in ready.items() if not is_ready]

    handlers = server.Handlers(waiting_for=waiting_for, metrics=parts.metrics.render)
    async with server.serving_probes(_listening(parts), handlers):
        await asyncio.Event().wait()


async def _controller(parts: Parts) -> None:
    """Take part in the leader election, once the webhook of this process is open."""
    if "webhook" in parts.settings.roles:
        await parts.review_state.open.wait()
    controller_app = await _imported("admission.controller_app")
    await controller_app.run(parts)


async def _imported(module: str) -> ModuleType:
    """Return the composition of a role, with all that it alone needs.

    The controller and the dashboard bring libraries for the database, which take seconds of processor time and some 40
    MiB. A webhook alone does without them, and reviews do not wait for them.
    """
    return await asyncio.to_thread(importlib.import_module, module)


async def _restart_on_failure(role: Callable[[Parts], Awaitable[None]], parts: Parts) -> None:
    """Run a role, and start it again whenever a dependency is unavailable."""
    while True:
        try:
            await role(parts)
        except RetryError as error:
            log.warning(
                "a dependency is away; the role is started again",
                role=getattr(role, "__name__", "role").strip("_"),
                error=str(error),
            )
            await asyncio.sleep(RETRY)


async def _first_worker_ended(link: WorkerChannel, live: LiveSettings) -> None:
    def settings_changed(task: Task) -> None:
        outcome = live.apply(msgspec.json.decode(task.settings, type=Settings))
        log.info("settings have changed", settings=list(outcome.changed))

    await link.listen(settings_changed)
    log.warning("the first of the workers is gone")
    raise _StoppedError


async def _stopped(stop: asyncio.Event) -> None:
    await stop.wait()
    raise _StoppedError
