"""The leader's reader of what devices did: its processor time for an hour of 40,000 devices at a sample a minute.

The real recorder, client and ledger (SQLite), against a stand-in for Prometheus in a process of its own, which answers
for each device of a query with a sample a minute of utilization, memory and power. What is measured is this process
alone, from the question which allocations there were to the commit of their rows. Goal (issue 30): ≤ 10 % of a core.
"""

import asyncio
import multiprocessing
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from typing import Any

from aiohttp import web
from rich.table import Table

from admission.accounting import books
from admission.accounting.books import Allocated, Book
from admission.accounting.memory_use import MemoryUse
from admission.api.kubernetes import devices
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster import queues
from admission.api.muster.ledger_entries import Entry, Holding, Seat
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.controller.own_writes import OwnWrites
from admission.controller.recent_use_reader import RecentUseReader
from admission.controller.usage_recorder import RecorderSettings, UsageRecorder
from admission.default_ports import FrozenView
from admission.ledger.db import migrations
from admission.ledger.journal import measured_usage
from admission.ledger.journal.base import Window
from admission.ledger.sql_ledger import SqlLedger
from admission.prometheus import device_queries
from admission.prometheus.api_client import ApiClient, Server
from admission.prometheus.device_meter import PrometheusMeter
from admission.status.device_uuids import DeviceUuids
from admission.status.idle_gangs import IdleGangs

DEVICES = 40_000
ON_NODE = 8
CLUSTER, DRIVER, QUEUE, METER = "east", "gpu.nvidia.com", QueueName("research"), MeterName("gpus")
START = datetime(2026, 11, 2, 10, tzinfo=UTC)
INTERVAL, STEP, DELAY = 3600, 60, 300
GOAL = 0.1
"""Of a core."""

_UUIDS = re.compile(r'[^_]UUID=~"([^"]*)"')
_VALUES = {"GR_ENGINE_ACTIVE": "0.731582", "FB_USED": "40213186560", "POWER_USAGE": "312.481"}


def measure(*, device_count: int = DEVICES) -> dict[str, Any]:
    """Return the processor seconds of this process for an hour of so many devices, and what part of a core it is."""
    assert device_count % ON_NODE == 0
    with tempfile.TemporaryDirectory() as folder, _answering() as port:
        url = f"sqlite+aiosqlite:///{folder}/ledger.db"
        asyncio.run(migrations.migrate(url))
        asyncio.run(_fill(url, device_count))
        seconds, read_back, rows = asyncio.run(_recorded(url, port, device_count))
    share = (seconds + read_back) / INTERVAL
    return {
        "devices": device_count,
        "rows": rows,
        "samples": device_count * len(_VALUES) * INTERVAL // STEP,
        "processor_s": seconds,
        "read_back_s": read_back,
        "part_of_a_core": share,
        "goal": GOAL,
        "met": share <= GOAL,
    }


def table(result: dict[str, Any]) -> Table:
    """Return the result as a table."""
    found = Table(title=f"Reading what {result['devices']} devices did in an hour, {result['samples']:,} samples")
    for column in ("", "found", "goal"):
        found.add_column(column, justify="right")
    found.add_row("processor seconds", f"{result['processor_s']:.1f}", f"{GOAL * INTERVAL:g}")
    found.add_row("and to know which gangs are idle", f"{result['read_back_s']:.1f}", "")
    found.add_row("part of a core", f"{result['part_of_a_core']:.2%}", f"{GOAL:.0%}")
    return found


async def _recorded(url: str, port: int, device_count: int) -> tuple[float, float, int]:
    """Record the hour; return the processor seconds of that and of reading it back, and how many rows there are."""
    slices = {f"node-{node}": _slice(node) for node in range(device_count // ON_NODE)}
    snapshot = Snapshot(slices=slices)
    uuids = DeviceUuids()
    uuids.update(snapshot)
    client = ApiClient(Server(url=f"http://127.0.0.1:{port}", timeout=60))
    end = START + timedelta(seconds=INTERVAL)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        recorder = UsageRecorder(
            log_=ledger,
            writes=OwnWrites(ledger),
            meter=PrometheusMeter(client, device_queries.DEFAULTS, step=STEP),
            view=FrozenView(snapshot),
            uuids=uuids,
            settings=RecorderSettings(interval=INTERVAL, step=STEP, delay=DELAY, actor="muster"),
            clock=lambda: end + timedelta(seconds=DELAY + 1),
            is_current=lambda: True,
            observe=lambda _: None,
        )
        began = time.process_time()
        assert await recorder.record(1)
        seconds = time.process_time() - began
        read_back = await _read_back(ledger, snapshot)
        async with ledger.snapshot() as connection:
            rows = [row async for row in measured_usage.within(connection, CLUSTER, Window(START, end))]
    assert len(rows) == device_count
    assert all(row.measured_seconds == INTERVAL == row.powered_seconds and row.memory_peak for row in rows)
    return seconds, read_back, len(rows)


async def _read_back(ledger: SqlLedger, snapshot: Snapshot) -> float:
    """Return the processor seconds until it is known which of the gangs are idle, as their queue asks."""
    queue = queues.decode({"metadata": {"name": QUEUE}, "spec": {"idle": {"belowPercent": 99, "after": "1h"}}})
    idle, book = IdleGangs(fresh=timedelta(days=1)), await ledger.load()
    reader = RecentUseReader(
        log=ledger,
        view=FrozenView(replace(snapshot, queues={QUEUE: queue})),
        idle=idle,
        memory=MemoryUse(),
        placements=lambda: book.placements,
        interval=timedelta(seconds=INTERVAL),
    )
    began = time.process_time()
    await reader.read()
    idle.update({QUEUE: queue}, book.placements, START + timedelta(seconds=INTERVAL))
    seconds = time.process_time() - began
    found = idle.reported({}, {QUEUE: queue})
    assert len(found) == len(book.placements)
    return seconds


async def _fill(url: str, device_count: int) -> None:
    """Write the books of gangs with the devices of a node each, a claim for each device, held for days."""
    async with SqlLedger.open(url, CLUSTER) as ledger:
        await ledger.post_all([books.grant(QUEUE, METER, device_count, at=_days(-3), actor="muster")], epoch=1)
        reserved = [_reserved(node) for node in range(device_count // ON_NODE)]
        # The time of the books does not go back.
        for entries in (reserved, [_settled(entry) for entry in reserved]):
            for first in range(0, len(entries), 100):
                await ledger.post_all(entries[first : first + 100], epoch=1)


def _reserved(node: int) -> Entry:
    claims = [(Uid(f"claim-{node}-{at}"), _given(node, at)) for at in range(ON_NODE)]
    seat = Seat(
        pod_uid=Uid(f"pod-{node}"),
        pod=f"ml/train-{node}",
        node=NodeName(f"node-{node}"),
        claims=tuple(uid for uid, _ in claims),
    )
    return books.reserve(
        gang_uid=GangUid(f"gang-{node}"),
        gang=f"ml/train-{node}",
        queue=QUEUE,
        seats=[seat],
        holdings=[Holding(claim_uid=uid, claim=f"ml/{uid}", devices=(one,), charge={METER: 1}) for uid, one in claims],
        at=_days(-2),
        actor="muster",
        reason="it fits",
        on_behalf_of=f"Job ml/train-{node}",
        user="zoe",
    )


def _settled(reserved: Entry) -> Entry:
    (placement,) = Book.replay([reserved]).placements.values()
    given = {uid: Allocated(one.devices, one.charge) for uid, one in placement.holdings.items()}
    entry = books.settle(placement, given, at=_days(-1), actor="muster")
    assert entry is not None
    return entry


def _given(node: int, at: int) -> RequestDevice:
    return RequestDevice(request="gpu", device=DeviceId(DRIVER, f"node-{node}", f"gpu-{at}"))


def _slice(node: int) -> devices.Slice:
    shown = [{"name": f"gpu-{at}", "attributes": {"uuid": {"string": _uuid(node, at)}}} for at in range(ON_NODE)]
    pool = {"name": f"node-{node}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": f"node-{node}", "pool": pool, "devices": shown}
    return devices.decode_slice({"metadata": {"name": f"node-{node}", "uid": f"slice-{node}"}, "spec": spec})


def _uuid(node: int, at: int) -> str:
    return f"GPU-0f6b1c2e-{node:04}-4d1a-9b3c-0000000000{at:02}"


def _days(count: int) -> datetime:
    return START + timedelta(days=count)


# The stand-in.


@contextmanager
def _answering() -> Iterator[int]:
    """Run the stand-in in a process of its own; yield its port."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.terminate()
        process.join()


def _serve(told: Connection) -> None:
    asyncio.run(_served(told))


async def _served(told: Connection) -> None:
    application = web.Application()
    application.router.add_post("/api/v1/query_range", _answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    told.send(runner.addresses[0][1])
    await asyncio.Event().wait()


async def _answer(request: web.Request) -> web.Response:
    form = await request.post()
    query, start, end, step = (str(form[name]) for name in ("query", "start", "end", "step"))
    uuids = _UUIDS.search(query)
    value = next(value for name, value in _VALUES.items() if name in query)
    assert uuids is not None, query
    points = range(int(start), int(end) + 1, int(step))
    values = ",".join(f'[{at},"{value}"]' for at in points)
    series = (f'{{"metric":{{"uuid":"{uuid}"}},"values":[{values}]}}' for uuid in uuids[1].split("|"))
    text = f'{{"status":"success","data":{{"resultType":"matrix","result":[{",".join(series)}]}}}}'
    return web.Response(text=text, content_type="application/json")
