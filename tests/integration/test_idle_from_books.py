"""Gangs that are idle, and that use more memory than was asked for, by what is recorded beside the books."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from admission import dashboard_app
from admission.accounting import books
from admission.accounting.books import Allocated, Book
from admission.accounting.device_samples import Quantity, Samples
from admission.accounting.memory_use import MemoryUse
from admission.api.device_use.idle import IdleDevices, IdlePolicy
from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster import queues
from admission.api.muster.ledger_entries import Entry, Holding, Seat
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid, MeterName, NodeName, Uid
from admission.controller.recent_use_reader import RecentUseReader
from admission.dashboard.ledger_queries import DoneBy, Window
from admission.default_ports import FrozenView
from admission.ledger.sql_ledger import SqlLedger
from admission.status.idle_gangs import IdleGangs
from tests.integration import prometheus, test_used_hours as used_hours
from tests.integration.ledgers import AT, CLUSTER, GPU, ON_SQLITE, QUEUE, a_grant, minutes
from tests.integration.test_used_hours import MIB, NVIDIA, Known, a_meter, filled, record
from tests.unit.cli.conftest import Muster

pytestmark = pytest.mark.timeout(240, func_only=True)


def samples_in(folder: Path) -> Path:
    prometheus.write_blocks(folder, list(used_hours.samples()))
    return folder


class Unused(Known):
    """A DeviceMeter of devices that do nothing."""

    async def samples(
        self, quantity: Quantity, devices: Mapping[str, Iterable[str]], start: datetime, end: datetime
    ) -> Mapping[tuple[str, str], Samples]:
        known = await super().samples(quantity, devices, start, end)
        return {device: [(at, 0) for at, _ in samples] for device, samples in known.items()}


def a_claim(gang: str, amount: str) -> Claim:
    names = {"busy": ["gpu-0", "gpu-1"], "next": ["gpu-0"]}[gang]
    results = [
        {"request": "r", "driver": NVIDIA, "pool": "node-a", "device": name, "consumedCapacity": {"memory": amount}}
        for name in names
    ]
    meta = {"name": gang, "namespace": "ml", "uid": f"{gang}-claim"}
    return claims.decode({"metadata": meta, "spec": {}, "status": {"allocation": {"devices": {"results": results}}}})


MEMORY: dict[str, tuple[dict[str, str], dict[str, tuple[int, int, int]]]] = {
    "one of them used more than both asked for": ({"busy": "1Gi", "next": "1Gi"}, {"busy": (2, 2048, 4096)}),
    "no more than both asked for": ({"busy": "2Gi", "next": "2Gi"}, {}),
    "of one it is not known what it asked for": ({"busy": "1Gi"}, {}),
    "nobody shares a device": ({}, {}),
}


@ON_SQLITE
@pytest.mark.parametrize(("asked", "found"), MEMORY.values(), ids=MEMORY)
async def test_what_claims_asked_for_is_compared_with_the_memory_in_use(
    url: str, tmp_path: Path, asked: dict[str, str], found: dict[str, tuple[int, int, int]]
) -> None:
    await filled(url)
    port = prometheus.free_port()
    with prometheus.running(samples_in(tmp_path), {}, port=port) as address:
        await used_hours.ready(address)
        await record(url, a_meter(port), now=minutes(65))
    async with SqlLedger.open(url, CLUSTER) as ledger:
        world = IdleWorld(ledger, await ledger.load(), asked=asked)
        await world.reader.read()
        over = world.memory.exceeding(minutes(60))
        assert {uid: (one.sharers, one.asked // MIB, one.peak // MIB) for uid, one in over.items()} == found


class IdleWorld:
    """Reads back what is recorded, for one queue that calls gangs idle which are below 5 % for some time."""

    def __init__(
        self, ledger: SqlLedger, book: Book, *, after: str = "2h", asked: Mapping[str, str] | None = None
    ) -> None:
        """asked: by gang, the memory that its claim asked for of gpu-0 and gpu-1, of gangs that have these."""
        self.gangs = IdleGangs(fresh=timedelta(minutes=70))
        spec = {"idle": {"belowPercent": 5, "after": after}}
        self.queues = {QUEUE: queues.decode({"metadata": {"name": QUEUE}, "spec": spec})}
        self.book = book
        claims = {gang: a_claim(gang, amount) for gang, amount in (asked or {}).items()}
        self.said: dict[GangUid, IdleDevices] = {}
        self.view = FrozenView(Snapshot(queues=self.queues, claims=claims))
        self.memory = MemoryUse()
        self.reader = RecentUseReader(
            log=ledger,
            view=self.view,
            idle=self.gangs,
            memory=self.memory,
            placements=lambda: self.book.placements,
            interval=timedelta(hours=1),
        )

    async def found(self, now: datetime) -> dict[str, datetime]:
        """Return since when gangs are idle, by name."""
        await self.reader.read()
        self.gangs.update(self.queues, self.book.placements, now, self.said.get)
        found = self.gangs.reported({}, self.queues)
        return {self.book.placements[uid].gang: idle.since for uid, idle in found.items()}


@ON_SQLITE
async def test_an_idle_gang_is_known_from_the_books_and_a_dark_or_busy_one_never(url: str, tmp_path: Path) -> None:
    await filled(url)
    port = prometheus.free_port()
    with prometheus.running(samples_in(tmp_path), {}, port=port) as address:
        await used_hours.ready(address)
        async with SqlLedger.open(url, CLUSTER) as ledger:
            world = IdleWorld(ledger, await ledger.load())
            assert await world.found(minutes(65)) == {}
            await record(url, a_meter(port), now=minutes(65))
            assert await world.found(minutes(65)) == {}, "an hour is not two"
            await record(url, a_meter(port), now=minutes(125))
            assert await world.found(minutes(125)) == {"ml/idle": AT}

            # Another leader reads the same from the books, without Prometheus.
            successor = IdleWorld(ledger, await ledger.load())
            assert await successor.found(minutes(126)) == {"ml/idle": AT}
            # The hour after, of which Prometheus has nothing, is recorded as not measured.
            await record(url, a_meter(port), now=minutes(185))
            assert await world.found(minutes(185)) == {}
            assert await successor.found(minutes(185)) == {}


@ON_SQLITE
async def test_a_gang_is_idle_since_the_same_time_for_the_next_leader(url: str) -> None:
    await filled(url)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        for hour in range(1, 5):
            await record(url, Unused(), now=minutes(60 * hour + 5))
        world = IdleWorld(ledger, await ledger.load(), after="1h")
        assert (await world.found(minutes(245)))["ml/idle"] == minutes(120), "no more is read back"
        policy = IdlePolicy(after=timedelta(hours=1))
        world.said[GangUid("idle")] = IdleDevices(since=AT, queue=QUEUE, policy=policy)
        assert (await world.found(minutes(245)))["ml/idle"] == AT


@ON_SQLITE
async def test_a_queue_that_asks_later_or_for_longer_reads_further_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(url)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        book = await ledger.load()
        for hour in range(1, 5):
            await record(url, Unused(), now=minutes(60 * hour + 5))
        world = IdleWorld(ledger, book, after="1h")
        assert (await world.found(minutes(245)))["ml/idle"] == minutes(120), "as far as it has to be known"
        world.queues[QUEUE] = replace(world.queues[QUEUE], idle=IdlePolicy(after=timedelta(hours=4)))
        assert await world.found(minutes(245)) == {"ml/idle": AT, "ml/slice": AT}

        monkeypatch.delattr(SqlLedger, "recorded")  # nothing new is recorded, so nothing is read
        assert await world.found(minutes(246)) == {"ml/idle": AT, "ml/slice": AT}


@ON_SQLITE
async def test_the_dashboard_has_used_hours_beside_allocated_ones_and_the_emptiest_gangs(
    url: str, tmp_path: Path
) -> None:
    await filled(url)
    port = prometheus.free_port()
    with prometheus.running(samples_in(tmp_path), {}, port=port) as address:
        await used_hours.ready(address)
        await record(url, a_meter(port), now=minutes(65))
    shown, hour = dashboard_app.Ledger(url, CLUSTER), Window(AT, minutes(60))
    async with SqlLedger.open(url, CLUSTER) as ledger:
        shown._opened = ledger
        by_gang = await shown.used(DoneBy.GANG, hour, "", most=2, most_empty=3)
        by_queue = await shown.used(DoneBy.QUEUE, hour, QUEUE, most=2, most_empty=10)
        nobody = await shown.used(DoneBy.USER, hour, "another", most=2, most_empty=10)

    assert [group.name for group in by_gang.groups] == ["ml/busy", "ml/dark"]
    assert by_gang.left_out == 3
    busy, dark = by_gang.groups
    assert (busy.allocated, busy.measured, busy.used, busy.idle) == (3600, 3060, 2_250_000_000, 810_000_000)
    assert busy.memory_peak == 4096 * MIB
    assert (dark.allocated, dark.measured, dark.used, dark.idle) == (3600, 0, None, None)
    assert [gang.name for gang in by_gang.emptiest] == ["ml/idle", "ml/slice", "ml/busy"]
    assert by_gang.total.used == sum(used for _, used, *_ in used_hours.FIRST_HOUR.values() if used is not None)
    (whole,) = by_queue.groups
    assert (whole.name, replace(whole, name="")) == (QUEUE, by_gang.total)
    assert [gang.name for gang in by_queue.emptiest] == ["ml/idle", "ml/slice", "ml/busy", "ml/next"]
    assert (nobody.groups, nobody.emptiest, nobody.total.allocated) == ([], [], 0)


MEM = MeterName("gpu-memory")


def shared(gang: str, amount: int | None, *, start: int, end: int | None = None, device: str = "gpu-0") -> list[Entry]:
    """Return the entries of a gang whose claim asked for so many MiB of a device; None for a claim of no such meter."""
    uid = Uid(f"{gang}-claim")
    given = (RequestDevice(request="r", device=DeviceId(NVIDIA, "node-a", device)),)
    charge = {GPU: 1} if amount is None else {GPU: 1, MEM: amount * MIB}
    reserved = books.reserve(
        gang_uid=GangUid(gang),
        gang=f"ml/{gang}",
        queue=QUEUE,
        seats=[Seat(pod_uid=Uid(f"{gang}-pod"), pod=f"ml/{gang}", node=NodeName("node-a"), claims=(uid,))],
        holdings=[Holding(claim_uid=uid, claim=f"ml/{gang}", devices=given, charge=charge)],
        at=minutes(start),
        actor="muster",
        reason="it fits",
        on_behalf_of=f"Job ml/{gang}",
    )
    book = Book.replay([reserved])
    settled = books.settle(
        book.placements[GangUid(gang)], {uid: Allocated(given, charge)}, at=minutes(start), actor="muster"
    )
    assert settled is not None
    if end is None:
        return [reserved, settled]
    placement = book.apply(settled).placements[GangUid(gang)]
    pods = [Uid(f"{gang}-pod")]
    released = books.release(placement, pods=pods, claims=[uid], at=minutes(end), actor="muster", reason="done")
    return [entry for entry in (reserved, settled, released) if entry is not None]


SHARED: dict[str, tuple[list[list[Entry]], dict[str, str]]] = {
    # Of GPU-0 4096 MiB are in use in minute 30, 9999 in minute 42, and 1000 in the others.
    "it used more than it asked for": ([shared("a", 3072, start=10, end=35)], {"ml/a": "1Gi"}),
    "it used no more": ([shared("a", 4096, start=10, end=35)], {"ml/a": "0Gi"}),
    "they asked for enough together": (
        [shared("a", 3072, start=10, end=35), shared("b", 1024, start=5, end=20)],
        {"ml/a": "0Gi", "ml/b": "0Gi"},
    ),
    "who came later did not share it": (
        [shared("a", 3072, start=10, end=35), shared("b", 1024, start=35)],
        {"ml/a": "1Gi", "ml/b": "8.76Gi"},
    ),
    "of one it is not known what it asked for": (
        [shared("a", 3072, start=10, end=35), shared("b", None, start=5, end=20)],
        {"ml/a": "-", "ml/b": "-"},
    ),
    "nothing was measured": ([shared("a", 1, start=10, device="dark")], {"ml/a": "-"}),
}


@ON_SQLITE
@pytest.mark.parametrize(("gangs", "over"), SHARED.values(), ids=SHARED)
def test_the_report_says_who_uses_more_memory_than_was_asked_for(
    url: str, tmp_path: Path, muster: Muster, gangs: list[list[Entry]], over: dict[str, str]
) -> None:
    async def fill() -> None:
        entries = [
            a_grant(64),
            books.grant(QUEUE, MEM, 1 << 40, at=AT, actor="muster"),
            *(entry for gang in gangs for entry in gang),
        ]
        async with SqlLedger.open(url, CLUSTER) as ledger:
            await ledger.post_all(sorted(entries, key=lambda entry: entry.at), epoch=1)

    asyncio.run(fill())
    port = prometheus.free_port()
    with used_hours.answering(samples_in(tmp_path), port):
        asyncio.run(record(url, a_meter(port), now=minutes(65)))
    period = ("--from", "2026-03-01T12:00Z", "--to", "2026-03-01T13:00Z", "--database", url, "--cluster", CLUSTER)
    by_gang = ("ledger", "report", "--by", "gang", "--memory-meter", MEM, *period)

    done = muster(*by_gang)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
    (at,) = (line.index("MEMORY-OVER") for line in lines if "MEMORY-OVER" in line)
    assert {line[0]: line[at] for line in lines if line[0].startswith("ml/")} == over

    told = json.loads(muster(*by_gang, "--format", "json").stdout)
    found = {row["gang"]: row["measured"]["memoryOverBytes"] for row in told["rows"]}
    assert ("claims outside queues" in done.stderr) == any(text not in {"0Gi", "-"} for text in over.values())
    unknown = {gang for gang, text in over.items() if text == "-"}
    assert {gang for gang, amount in found.items() if amount is None} == unknown
    assert "memory_over_bytes" in muster(*by_gang, "--format", "csv").stdout.splitlines()[0].split(",")


@ON_SQLITE
def test_a_meter_of_memory_that_the_books_do_not_know_is_refused(url: str, muster: Muster) -> None:
    asyncio.run(filled(url))
    done = muster("ledger", "report", "--memory-meter", "ram", "--database", url, "--cluster", CLUSTER)
    assert done.returncode == 2
    assert "--memory-meter: the books know no meter 'ram'; there are gpu" in " ".join(done.stderr.split())
