"""The composition root: reads the settings, builds the adapters, and runs the roles until told to stop.

The whole wiring is this page. Every long-running task belongs to the one TaskGroup in `serve` and has a name. With
several workers this process is the first of them, and `work` is what the others run: the webhook, and nothing else.
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
from typing import Protocol, TypeVar

import msgspec
import structlog

from admission import controller_app, resources, webhook_identity
from admission.cel.syntax import parser
from admission.cycle import profile
from admission.errors import FixError, RetryError
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

RETRY = 2.0
"""Seconds before a role that lost a dependency is started again."""

WORKER = (sys.executable, "-m", "admission.cli.serve.worker")
"""The command of a further worker."""


class ReviewState:
    """What the webhook knows beside the store, once it is `open`: before that the first reviews would wait for it."""

    def __init__(self) -> None:
        self.memory = ReviewCaches()
        self.open = asyncio.Event()

    async def prepare(self, store: Store) -> None:
        """Find out what every review asks, away from the loop."""
        await asyncio.to_thread(parser.prepare)
        await store.wait_synced()
        try:
            self.memory = await asyncio.to_thread(reviewer.warm_caches, store.snapshot())
        except Exception:  # what one review trips over is no reason to answer none
            log.exception("the first review could not be prepared for")
        self.open.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts(controller_app.Parts):
    """What the roles share."""

    link: WorkerChannel | None = None
    """The line to the first of several workers; None: this is the first, or the only one."""
    review_state: ReviewState = field(default_factory=ReviewState)


class Reloader(Protocol):
    """Tells of settings that have changed."""

    async def follow(self, live: LiveSettings) -> None:
        """Hand them over whenever there are any, until cancelled."""
        ...


class _StoppedError(Exception):
    """Ends the TaskGroup when the process is told to stop."""


async def work(end: socket.socket, *, stop: asyncio.Event) -> None:
    """Do as a worker what the first process says at the other end, until `stop` is set or that process is gone."""
    link = await WorkerChannel.from_socket(end)
    structlog.contextvars.bind_contextvars(worker=link.task.number)
    settings = msgspec.json.decode(link.task.settings, type=Settings)
    await serve(settings, stop=stop, link=link)


async def serve(
    settings: Settings, *, stop: asyncio.Event, link: WorkerChannel | None = None, reloader: Reloader | None = None
) -> None:
    """Run the roles of the settings until `stop` is set. link: to the first process, if this is a further worker.

    Raises FixError when the installation or the settings are wrong, ClusterUnavailableError when the API server does
    not answer at the start. Later losses of the API server or of the database are waited out.
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
        if settings.install_crds:
            await crd_installer.install(connection, sorted((resources.config() / "crds").glob("*.yaml")))
        await leader_election.ensure(connection, settings.lease.namespace)
    versions = Versions(profile.named(str(settings.controller.profile)))
    return Parts(
        live=live,
        connection=connection,
        store=store,
        versions=versions,
        metrics=Metrics(
            worker=link.task.number if link is not None else workers.FIRST,
            watched=lambda: map(Watched._make, store.watch_statistics()),
        ),
        traces=traces,
        user=user,
        registrar=registrar,
        link=link,
    )


def _store(settings: Settings) -> Store:
    """Return a store of what the roles look at: a webhook alone judges by less than a controller."""
    alone = {"webhook": watched_resources.ADMISSION, "dashboard": dashboard_store.WATCHED}
    [role, *others] = set(settings.roles)
    return Store(alone[role]) if role in alone and not others else Store()


async def _dashboard(parts: Parts) -> None:
    """Serve the pages for people."""
    # Templates and the database's library are long to import, and no review has to wait for them.
    dashboard_app = await asyncio.to_thread(importlib.import_module, "admission.dashboard_app")
    await dashboard_app.serve(parts.settings, parts.connection, parts.store)


async def _registration(parts: Parts) -> None:
    """Keep the webhook's authorities, paths and configurations."""
    has_webhook = "webhook" in parts.settings.roles
    await parts.registrar.keep(parts.review_state.open.wait if has_webhook else parts.store.wait_synced)


async def _webhook(parts: Parts) -> None:
    """Answer the API server."""
    settings = parts.settings.webhook
    source = webhook_identity.certificates(parts.settings, parts.connection)
    if parts.link is not None:
        # One that could not answer yet would be sent its part of the reviews all the same.
        await parts.review_state.open.wait()
    elif settings.workers > 1 and settings.port:
        await listener.ensure_free(server.address(_listening(parts)))
    async with workers.started(settings.workers, WORKER) as pool:
        certificate = await _first(parts, source.current, "its certificate")
        # One that knows no path would answer 404 what the others judge.
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
    """Wait for a certificate or for paths; probes are answered meanwhile, since a controller may take long to start."""
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
        mutate=lambda review: reviewer.mutate(review, store, caches=review_state.memory),
        validate=lambda review: reviewer.validate(review, store, rules=rules, caches=review_state.memory),
        hold=lambda review: reviewer.hold(review, store, caches=review_state.memory),
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
    """Return what further workers do: they answer on the port of this process, and write nothing but their logs.

    They neither read the ledger nor publish its heads, so where these are is not told to them.
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
    """Tell the workers of settings that have changed."""
    while True:
        await parts.live.change()
        await pool.send_tasks(callbacks)


async def _probes_and_metrics(parts: Parts) -> None:
    """Serve probes and metrics where there is no webhook.

    A controller is ready when it could lead; whether it does is a metric. A dashboard is without its books, too.
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
    """Lead when it is this process's turn, once reviews are answered."""
    if "webhook" in parts.settings.roles:
        await parts.review_state.open.wait()
    await controller_app.run(parts)


async def _restart_on_failure(role: Callable[[Parts], Awaitable[None]], parts: Parts) -> None:
    """Run a role, again and again while what it depends on is away."""
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
