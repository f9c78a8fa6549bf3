"""The composition of the controller: builds the parts of a leader, and runs the cycles while this process leads.

`app` runs it as one of its roles. Every task of a term belongs to the TaskGroup in `_admit`.
"""

import asyncio
import os
import socket
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from admission import default_ports, ports
from admission.accounting.device_samples import Quantity
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.status_reports import EventType
from admission.api.values.names import GangUid
from admission.api.values.reasons import EventReason
from admission.controller import admission_loop, head_publisher, leadership
from admission.controller.head_publisher import ConfigMapSink, HeadPublisher
from admission.controller.head_signer import HeadSigner, SigningSettings
from admission.controller.idle_check import IdleCheck
from admission.controller.own_writes import OwnWrites
from admission.controller.recent_use_reader import RecentUseReader
from admission.controller.standby import Standby
from admission.controller.status_writer import StatusWriter
from admission.controller.usage_recorder import RecorderSettings, UsageRecorder
from admission.controller.waiting_recorder import WaitingRecorder
from admission.cycle import cycle
from admission.cycle.state.leader import Leader, Ports, ProcessState
from admission.cycle.state.result import CycleResult
from admission.cycle.state.term import CycleSettings
from admission.errors import DeposedError
from admission.kube import leader_election
from admission.kube.cache import reflector, watched_resources
from admission.kube.cache.store import Store, Subscription
from admission.kube.config_map_store import ConfigMapStore
from admission.kube.fence_controller import FenceController, FenceSettings
from admission.kube.leader_election import Durations, Lease
from admission.kube.secret_store import SecretStore
from admission.kube.writers.claim_templates import TemplateReconciler
from admission.kube.writers.claims import ClaimWriter
from admission.kube.writers.nodes import NodeWriter
from admission.kube.writers.pods import PodWriter
from admission.kube.writers.provisioning_requests import ProvisioningRequestWriter
from admission.kube.writers.queue_finalizer import QueueFinalizerWriter
from admission.kube.writers.status import Reporter
from admission.kube.writers.workloads import WorkloadWriter
from admission.ledger.db import migrations
from admission.ledger.head_sinks import FileSink, HttpSink
from admission.ledger.sql_ledger import SqlLedger
from admission.process_parts import Parts
from admission.prometheus import device_queries
from admission.prometheus.api_client import ApiClient, Server
from admission.prometheus.device_meter import PrometheusMeter
from admission.settings import Metrics as MetricsSettings, Prometheus as PrometheusSettings, Usage as UsageSettings
from admission.status.device_allocations import DeviceAllocations
from admission.status.device_uuids import DeviceUuids
from admission.status.idle_gangs import IdleGangs

log = structlog.get_logger()

_now = partial(datetime.now, UTC)

LATE = timedelta(minutes=5)
"""How much later than it is due a recorded time may come until its gangs are no longer known to be idle."""

NO_TERM = 0
"""The epoch of a process that does not lead. The ledger accepts no entry with it."""


async def run(parts: Parts) -> None:
    """Take part in the leader election, and run admission cycles while this process leads."""
    settings = parts.settings
    if settings.ledger.migrate:
        await migrations.migrate(settings.ledger.url)
    async with SqlLedger.open(settings.ledger.url, settings.ledger.cluster) as ledger:
        parts.ledger_opened.set()
        await parts.versions.probe(parts.connection)
        await parts.store.wait_synced()

        make = partial(_term_parts, parts, ledger, ProcessState())
        standby = Standby(make, lambda term: cycle.preload(term.leader, _now()))

        async def work(epoch: int) -> None:
            try:
                await ledger.fence(epoch)
            except DeposedError:
                await _report_raised_epoch(parts, ledger)
                raise
            await reflector.caught_up(parts.connection, parts.store, (watched_resources.QUEUES,))
            async with standby.take_over() as term:
                term.leader.term.begin(epoch)
                parts.registrar.rewrite()
                try:
                    await _admit(parts, term, epoch)
                except* DeposedError:
                    if term.heads is not None:
                        await term.heads.check_ended_term(epoch)
                    raise

        async with standby.preloading():
            await leadership.lead(_election(parts), work, on_change=parts.metrics.set_term)


class _TermParts(NamedTuple):
    """The parts of one term: the leader's state, and the loops that write beside the cycles."""

    leader: Leader
    status_writer: StatusWriter
    fence_controller: FenceController
    templates: TemplateReconciler
    heads: HeadPublisher | None
    waiting: WaitingRecorder
    usage: UsageRecorder | None


def _term_parts(parts: Parts, ledger: SqlLedger, process: ProcessState) -> _TermParts:
    connection, settings = parts.connection, parts.settings.controller
    status_writer = StatusWriter(Reporter(connection, parts.store))
    fence_controller = FenceController(connection, _fence_settings(parts))
    templates = TemplateReconciler(connection, parts.store, exempt=_fence_settings(parts).exempt)
    writes = OwnWrites(ledger)
    adapters = Ports(
        view=parts.store,
        pods=PodWriter(connection),
        claims=ClaimWriter(connection),
        workloads=WorkloadWriter(connection),
        reports=status_writer,
        ledger=writes,
        scheduler=parts.versions,
        fences=fence_controller,
        queues=QueueFinalizerWriter(connection),
        templates=templates,
        requests=ProvisioningRequestWriter(connection),
        nodes=NodeWriter(connection),
        traces=parts.traces or default_ports.UNTRACED,
    )
    actor = f"{parts.user}@{socket.gethostname()}/{os.getpid()}"
    cycle_settings = CycleSettings(
        steps=settings.steps,
        writes=settings.writes,
        schedulers=frozenset(settings.schedulers),
        strands_least=settings.strands_least,
    )
    leader = Leader.build(
        ports=adapters,
        actor=actor,
        epoch=NO_TERM,
        settings=cycle_settings,
        process=process,
        allocations=_device_allocations(parts.settings.metrics),
        idle=_idle_gangs(parts.settings.usage),
    )
    heads = _head_publisher(parts, ledger, writes, status_writer) if parts.settings.heads.enabled else None
    waiting = WaitingRecorder(ledger, _now)
    usage = _usage_recorder(parts, ledger, writes, leader, actor)
    return _TermParts(leader, status_writer, fence_controller, templates, heads, waiting, usage)


def _usage_recorder(
    parts: Parts, ledger: SqlLedger, writes: OwnWrites, leader: Leader, actor: str
) -> UsageRecorder | None:
    settings = parts.settings.usage
    if settings.prometheus.url is None:
        return None
    meter = PrometheusMeter(
        _api_client(settings.prometheus, settings.prometheus.url),
        device_queries.chosen(_queries(settings.prometheus)),
        step=settings.step,
    )
    uuids = DeviceUuids(_uuid_attributes(parts.settings.metrics))

    def placements() -> Mapping[GangUid, Placement]:
        return leader.mirror.book.placements

    return UsageRecorder(
        log_=ledger,
        writes=writes,
        meter=meter,
        view=parts.store,
        uuids=uuids,
        settings=RecorderSettings(interval=settings.interval, step=settings.step, delay=settings.delay, actor=actor),
        clock=_now,
        is_current=lambda: leader.mirror.is_current,
        observe=parts.metrics.usage_overdue,
        recent=RecentUseReader(
            log=ledger,
            view=parts.store,
            idle=leader.idle,
            memory=leader.memory,
            placements=placements,
            interval=timedelta(seconds=settings.interval),
        ),
        check=IdleCheck(
            meter=meter,
            idle=leader.idle,
            uuids=uuids,
            placements=placements,
            step=settings.step,
            delay=settings.delay,
        ),
    )


def _idle_gangs(settings: UsageSettings) -> IdleGangs:
    if settings.prometheus.url is None:
        return IdleGangs(records=False)
    # The next time is recorded by then.
    fresh = timedelta(seconds=settings.interval + settings.delay) + LATE
    return IdleGangs(uncounted=device_queries.uncounted(_queries(settings.prometheus)), fresh=fresh)


def _api_client(settings: PrometheusSettings, url: str) -> ApiClient:
    return ApiClient(
        Server(url=url, token_file=settings.token_file, authority=settings.authority, timeout=settings.timeout)
    )


def _queries(settings: PrometheusSettings) -> Mapping[Quantity, Iterable[str]]:
    """Return the queries that the settings have, each `driver=query`."""
    return {
        Quantity.UTILIZATION: settings.utilization,
        Quantity.MEMORY: settings.memory,
        Quantity.POWER: settings.power,
    }


def _device_allocations(settings: MetricsSettings) -> DeviceAllocations | None:
    if not settings.allocations:
        return None
    return DeviceAllocations(_uuid_attributes(settings))


def _uuid_attributes(settings: MetricsSettings) -> dict[str, str]:
    """Return the attribute that identifies a driver's devices, by driver."""
    return dict(one.split("=", 1) for one in settings.uuids)


def _head_publisher(parts: Parts, ledger: SqlLedger, writes: OwnWrites, status_writer: StatusWriter) -> HeadPublisher:
    settings, namespace = parts.settings.heads, parts.settings.lease.namespace
    signer = HeadSigner(
        chain=ledger,
        writes=writes,
        keys=SecretStore(parts.connection, namespace=namespace, name=settings.secret),
        settings=SigningSettings(
            cluster=parts.settings.ledger.cluster,
            interval=timedelta(seconds=settings.interval),
            lifetime=timedelta(days=settings.key_days),
        ),
        clock=_now,
    )
    sinks: dict[str, ports.HeadSink] = {}
    if settings.file is not None:
        sinks["file"] = FileSink(Path(settings.file))
    if settings.url is not None:
        sinks["http"] = HttpSink(settings.url)
    store = ConfigMapStore(parts.connection, namespace=namespace, name=settings.config_map)
    return HeadPublisher(
        signer,
        config_map=ConfigMapSink(store, signer, _now),
        sinks=sinks,
        metrics=parts.metrics,
        notify=status_writer.notify,
        subject=(namespace, settings.config_map),
    )


async def _report_raised_epoch(parts: Parts, ledger: SqlLedger) -> None:
    """Warn, in the log and as an Event, if the ledger has a later epoch than the lease, which deposes every leader."""
    lease = parts.settings.lease
    stored = (await ledger.end()).epoch
    latest = await leader_election.latest_epoch(parts.connection, lease.namespace, lease.name)
    if latest is None or stored <= latest:
        return
    cluster = parts.settings.ledger.cluster
    message = (
        f"the ledger has epoch {stored} for cluster {cluster}, and the lease {lease.namespace}/{lease.name} has given"
        f" {latest} at most: every leader is deposed. Another installation writes the books of the same cluster, or"
        " the epoch was raised in the table: `muster ledger verify --heads cluster` says how to set it right"
    )
    log.error("the epoch of the ledger is none of this cluster's leaders", ledger=stored, lease=latest, fix=message)
    subject = (lease.namespace, parts.settings.heads.config_map)
    notice = head_publisher.notice(subject, EventType.WARNING, EventReason.EPOCH_RAISED, message)
    await Reporter(parts.connection).notify(notice)


async def _admit(parts: Parts, term: _TermParts, epoch: int) -> None:
    """Run admission cycles, and beside them the loops that write."""
    leader, status_writer, fence_controller, templates, heads, waiting, usage = term

    def observe(result: CycleResult, seconds: float) -> None:
        parts.metrics.record_cycle(result, seconds)
        waiting.observe(result)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(status_writer.run(), name="write reports")
        tasks.create_task(fence_controller.run(), name="keep the fences")
        tasks.create_task(waiting.run(epoch), name="write how long gangs wait")
        if heads is not None:
            tasks.create_task(heads.run(epoch), name="sign and publish heads")
        if usage is not None:
            tasks.create_task(usage.run(epoch), name="record what devices did")
        with parts.store.subscribe() as subscription:
            tasks.create_task(_wake_on_fence_changes(fence_controller.store, subscription), name="watch the fences")
            tasks.create_task(templates.run(wake=subscription.wake), name="keep claim templates")
            pace, kinds = partial(_pace, parts, leader.settings), (watched_resources.PODS, watched_resources.CLAIMS)
            confirm = partial(reflector.caught_up, parts.connection, parts.store, kinds)
            await admission_loop.admit(leader, subscription, pace=pace, clock=_now, observe=observe, confirm=confirm)


def _election(parts: Parts) -> Lease:
    lease = parts.settings.lease
    durations = Durations(lease=lease.duration, renew=lease.renew_deadline, retry=lease.retry)
    return Lease(parts.connection, namespace=lease.namespace, name=lease.name, durations=durations)


def _fence_settings(parts: Parts) -> FenceSettings:
    settings = parts.settings
    namespace = settings.lease.namespace
    return FenceSettings(namespace=namespace, controller=parts.user, fence=settings.fence, coverage=settings.coverage)


async def _wake_on_fence_changes(store: Store, subscription: Subscription) -> None:
    """Start a cycle after every change of a fence."""
    with store.subscribe() as changes:
        while True:
            await changes.next()
            subscription.wake()


def _pace(parts: Parts, cycle_settings: CycleSettings) -> admission_loop.Pace:
    """Return the pace of the settings as they are now, and have the next cycle use their bounds."""
    settings = parts.settings.controller
    cycle_settings.update(steps=settings.steps, writes=settings.writes, strands_least=settings.strands_least)
    return admission_loop.Pace(resync=settings.resync, debounce=settings.debounce)
