"""What devices did, read from a real Prometheus and recorded beside the books: to the second, once, never made up.

Its samples are made beforehand, at half of each minute, so that each minute has one of what it says.
"""

import asyncio
import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from admission.accounting import books, measurements
from admission.accounting.books import Allocated, Book
from admission.accounting.device_samples import Quantity, Samples
from admission.api.kubernetes import devices
from admission.api.kubernetes.devices import DeviceId, RequestDevice, Slice
from admission.api.muster.ledger_entries import Entry, Holding, Kind, MeasuredUsage, Seat
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.controller import usage_recorder
from admission.controller.own_writes import OwnWrites
from admission.controller.usage_recorder import RecorderSettings, UsageRecorder
from admission.default_ports import FrozenView
from admission.errors import LedgerCorruptError, LedgerUnavailableError, RetryError
from admission.ledger.audit.close_period import Order
from admission.ledger.audit.verify import What
from admission.ledger.journal import measured_usage
from admission.ledger.journal.base import Window
from admission.ledger.sql_ledger import SqlLedger
from admission.ports import DeviceMeter
from admission.prometheus import device_queries
from admission.prometheus.api_client import ApiClient, Server
from admission.prometheus.device_meter import PrometheusMeter
from admission.status.device_uuids import DeviceUuids
from tests.integration import ledgers, prometheus
from tests.integration.ledgers import AT, CLUSTER, GPU, ON_SQLITE, QUEUE, a_grant, minutes, rows
from tests.integration.prometheus import Sample
from tests.unit.cli.conftest import Muster

pytestmark = pytest.mark.timeout(240, func_only=True)

NVIDIA = "gpu.nvidia.com"
UUIDS = {"gpu-0": "GPU-0", "gpu-1": "GPU-1", "gpu-2": "GPU-2", "mig-7": "MIG-7", "dark": ""}
MIB = 2**20


def a_slice() -> Slice:
    described = [
        {"name": name, "attributes": {"uuid": {"string": uuid}} if uuid else {}} for name, uuid in UUIDS.items()
    ]
    pool = {"name": "node-a", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": NVIDIA, "nodeName": "node-a", "pool": pool, "devices": described}
    return devices.decode_slice({"metadata": {"name": "node-a", "uid": "node-a"}, "spec": spec})


def held(gang: str, names: Iterable[str], start: datetime, end: datetime | None = None) -> list[Entry]:
    """Return the entries of a gang whose claim has these devices from `start` to `end`."""
    uid = Uid(f"{gang}-claim")
    given = tuple(RequestDevice(request="r", device=DeviceId(NVIDIA, "node-a", name)) for name in names)
    reserved = books.reserve(
        gang_uid=GangUid(gang),
        gang=f"ml/{gang}",
        queue=QUEUE,
        seats=[Seat(pod_uid=Uid(f"{gang}-pod"), pod=f"ml/{gang}", node=NodeName("node-a"), claims=(uid,))],
        holdings=[Holding(claim_uid=uid, claim=f"ml/{gang}", devices=given, charge={GPU: len(given)})],
        at=start,
        actor="muster",
        reason="it fits",
        on_behalf_of=f"Job ml/{gang}",
        user="zoe",
    )
    book = Book.replay([reserved])
    allocated = {uid: Allocated(given, {GPU: len(given)})}
    settled = books.settle(book.placements[GangUid(gang)], allocated, at=start, actor="muster")
    assert settled is not None
    released = None
    if end is not None:
        placement = book.apply(settled).placements[GangUid(gang)]
        released = books.release(
            placement, pods=[Uid(f"{gang}-pod")], claims=[uid], at=end, actor="muster", reason="done"
        )
    return [entry for entry in (reserved, settled, released) if entry is not None]


def a_history() -> list[Entry]:
    """Two gangs, one busy and one idle; a MIG instance; a device that moves to another gang; one without a UUID."""
    entries = [
        a_grant(64),
        *held("idle", ["gpu-2"], AT),
        *held("slice", ["mig-7"], AT),
        *held("dark", ["dark"], AT),
        *held("busy", ["gpu-0", "gpu-1"], minutes(10), minutes(40)),
        *held("next", ["gpu-0"], minutes(45)),
    ]
    return sorted(entries, key=lambda entry: entry.at)


def a_metric(name: str, uuid: str, **labels: str) -> str:
    known = {"gpu": "0", "UUID": uuid, "Hostname": "node-a"} | labels
    return f"DCGM_FI_{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in known.items())}}}"


def samples() -> Iterator[Sample]:
    """Yield what the exporter showed in two hours; of GPU-1 nothing in the minutes 20 to 28."""
    engine = "PROF_GR_ENGINE_ACTIVE"
    for minute in range(120):
        at = minutes(minute) + timedelta(seconds=30)
        yield a_metric(engine, "GPU-0"), at, 0.9 if minute < 45 else 0.3
        if not 20 <= minute < 29:
            yield a_metric(engine, "GPU-1"), at, 0.5
        yield a_metric(engine, "GPU-2"), at, 0.0
        mig = {"GPU_I_ID": "7", "GPU_I_PROFILE": "1g.10gb", "dra_mig_device_uuid": "MIG-7"}
        yield a_metric(engine, "GPU-3", **mig), at, 0.25
        # What it held while nobody had it is nobody's.
        memory = {30: 4096, 42: 9999}.get(minute, 1000)
        yield a_metric("DEV_FB_USED", "GPU-0"), at, memory
        yield a_metric("DEV_POWER_USAGE", "GPU-0"), at, 300
        for metrics in OTHERS.values():
            for series, value, _, _ in metrics:
                yield series, at, value


OTHERS: dict[str, list[tuple[str, float, Quantity, int]]] = {
    NVIDIA: [('DCGM_FI_DEV_GPU_UTIL{UUID="GPU-X",pod="a"}', 50, Quantity.UTILIZATION, 500_000)],
    "gpu.amd.com": [
        ('gpu_gfx_activity{gpu_uuid="GPU-X",gpu_id="0"}', 50, Quantity.UTILIZATION, 500_000),
        ('gpu_used_vram{gpu_uuid="GPU-X",gpu_id="0"}', 3, Quantity.MEMORY, 3 * MIB),
        ('gpu_package_power{gpu_uuid="GPU-X",gpu_id="0"}', 300.25, Quantity.POWER, 300_250),
    ],
    "gpu.intel.com": [
        ('xpum_engine_ratio{uuid="GPU-X",sub_dev="0"}', 0.5, Quantity.UTILIZATION, 500_000),
        ('xpum_memory_used_bytes{uuid="GPU-X",sub_dev="0"}', 1000, Quantity.MEMORY, 3000),
        ('xpum_memory_used_bytes{uuid="GPU-X",sub_dev="1"}', 2000, Quantity.MEMORY, 3000),
        ('xpum_power_watts{uuid="GPU-X"}', 300, Quantity.POWER, 300_000),
    ],
    "tpu.google.com": [
        ('tensorcore_utilization{make="cloud-tpu",accelerator_id="GPU-X"}', 50, Quantity.UTILIZATION, 500_000),
        ('memory_used{make="cloud-tpu",accelerator_id="GPU-X"}', 3000, Quantity.MEMORY, 3000),
    ],
}
"""What exporters of each driver show, with the quantity and the amount that it is."""


async def _check_others(meter: PrometheusMeter) -> None:
    for driver, metrics in OTHERS.items():
        for _, _, quantity, amount in metrics:
            found = await meter.samples(quantity, {driver: ["GPU-X", "GPU-Y"]}, AT, minutes(2))
            ends = [int(minutes(minute).timestamp()) for minute in (1, 2)]
            assert found == {(driver, "GPU-X"): [(end, amount) for end in ends]}, (driver, quantity)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with the samples."""
    prometheus.write_blocks(tmp_path, list(samples()))
    return tmp_path


@contextmanager
def answering(folder: Path, port: int) -> Iterator[None]:
    with prometheus.running(folder, {}, port=port) as url:
        asyncio.run(ready(url))
        yield


async def ready(url: str) -> None:
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{url}/-/ready") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


def a_recorder(
    ledger: SqlLedger, meter: DeviceMeter, *, now: datetime, is_current: bool = True, recent: Any = None
) -> UsageRecorder:
    uuids = DeviceUuids()
    snapshot = Snapshot(slices={"node-a": a_slice()})
    uuids.update(snapshot)
    return UsageRecorder(
        log_=ledger,
        writes=OwnWrites(ledger),
        meter=meter,
        view=FrozenView(snapshot),
        uuids=uuids,
        settings=RecorderSettings(interval=3600, step=60, delay=300, actor="muster"),
        clock=lambda: now,
        is_current=lambda: is_current,
        observe=lambda _: None,
        recent=recent,
    )


def a_meter(port: int) -> PrometheusMeter:
    client = ApiClient(Server(url=f"http://127.0.0.1:{port}", timeout=10))
    return PrometheusMeter(client, device_queries.DEFAULTS, step=60)


async def record(url: str, meter: DeviceMeter, *, now: datetime, times: int = 1, epoch: int = 1) -> list[bool]:
    async with SqlLedger.open(url, CLUSTER) as ledger:
        recorder = a_recorder(ledger, meter, now=now)
        return [await recorder.record(epoch) for _ in range(times)]


async def filled(url: str) -> None:
    async with SqlLedger.open(url, CLUSTER) as ledger:
        await ledger.post_all(a_history(), epoch=1)


async def recorded(url: str, start: datetime, end: datetime) -> dict[str, MeasuredUsage]:
    async with SqlLedger.open(url, CLUSTER) as ledger, ledger.snapshot() as connection:
        verification = await ledger.verify()
        assert verification.ok, verification.finding
        found = [row async for row in measured_usage.within(connection, CLUSTER, Window(start, end))]
    assert len({row.claim for row in found}) == len(found)
    return {row.gang.removeprefix("ml/"): row for row in found}


def numbers(row: MeasuredUsage) -> tuple[int | None, ...]:
    return row.measured_seconds, row.used_microseconds, row.memory_peak, row.powered_seconds, row.energy


FIRST_HOUR = {
    # Two devices for 30 minutes, of one of which 9 are missing.
    "busy": (1800 + 21 * 60, 1800 * 900_000 + 21 * 60 * 500_000, 4096 * MIB, 1800, 1800 * 300_000),
    "idle": (3600, 0, None, 0, None),
    "slice": (3600, 3600 * 250_000, None, 0, None),
    "dark": (0, None, None, 0, None),
    "next": (900, 900 * 300_000, 1000 * MIB, 900, 900 * 300_000),
}
SECOND_HOUR = {
    "idle": (3600, 0, None, 0, None),
    "slice": (3600, 3600 * 250_000, None, 0, None),
    "dark": (0, None, None, 0, None),
    "next": (3600, 3600 * 300_000, 1000 * MIB, 3600, 3600 * 300_000),
}


@ON_SQLITE
def test_what_devices_did_is_recorded_once_to_the_second_and_when_prometheus_is_back(
    url: str, data: Path, muster: Muster
) -> None:
    asyncio.run(filled(url))
    port = prometheus.free_port()
    later = minutes(65)

    # It is away: nothing is recorded, least of all that nothing was used.
    with pytest.raises(RetryError, match="does not answer"):
        asyncio.run(record(url, a_meter(port), now=later))
    assert asyncio.run(recorded(url, AT, minutes(60))) == {}

    with answering(data, port):
        assert asyncio.run(record(url, a_meter(port), now=later - timedelta(seconds=1))) == [True]  # the hour before
        assert asyncio.run(record(url, a_meter(port), now=later, times=2)) == [True, False]
        asyncio.run(_check_others(a_meter(port)))
    first = asyncio.run(recorded(url, AT, minutes(60)))
    assert {gang: numbers(row) for gang, row in first.items()} == FIRST_HOUR
    assert (first["busy"].start, first["busy"].end, first["busy"].devices) == (minutes(10), minutes(40), 2)

    # Away again, for hours; then it has what it scraped.
    with pytest.raises(RetryError):
        asyncio.run(record(url, a_meter(port), now=minutes(300)))
    with answering(data, port):
        assert asyncio.run(record(url, a_meter(port), now=minutes(300), times=4)) == [True, True, True, False]
    second = asyncio.run(recorded(url, minutes(60), minutes(120)))
    assert {gang: numbers(row) for gang, row in second.items()} == SECOND_HOUR
    third = asyncio.run(recorded(url, minutes(120), minutes(180)))
    assert {gang: numbers(row) for gang, row in third.items()} == dict.fromkeys(SECOND_HOUR, (0, None, None, 0, None))
    assert asyncio.run(recorded(url, AT, minutes(60))) == first
    _check_report(muster, url)
    _check_exports(muster, url)


def _check_report(muster: Muster, url: str) -> None:
    period = ("--from", "2026-03-01T12:00Z", "--to", "2026-03-01T13:00Z", "--database", url, "--cluster", CLUSTER)
    done = muster("ledger", "report", "--used", "--by", "gang", *period)
    assert done.returncode == 0, done.stderr
    lines = {words[0]: words[1:] for line in done.stdout.splitlines() if (words := line.split())}
    assert lines["ml/busy"][:7] == ["1", "0.85", "0.625", "0.225", "73.5%", "4Gi", "0.15"]
    assert lines["ml/idle"][:7] == ["1", "1", "0", "1", "0%", "-", "-"]
    assert lines["ml/dark"][:7] == ["1", "0", "-", "-", "-", "-", "-"]
    assert lines["total"][:3] == ["4.25", "3.1", "0.95"]

    done = muster("ledger", "report", "--most-idle", "2", "--by", "gang", *period)
    assert [line.split()[0] for line in done.stdout.splitlines()[2:] if line] == ["ml/idle", "ml/slice", "total"]

    told = json.loads(muster("ledger", "report", "--used", "--by", "gang", "--format", "json", *period).stdout)
    busy = next(row for row in told["rows"] if row["gang"] == "ml/busy")
    assert busy["measured"] == {
        "measuredSeconds": "3060",
        "usedMicroseconds": "2250000000",
        "idleMicroseconds": "810000000",
        "memoryPeakBytes": str(4096 * MIB),
        "poweredSeconds": "1800",
        "energyMillijoules": "540000000",
    }


def _check_exports(muster: Muster, url: str) -> None:
    period = ("--from", "2026-03-01T12:00Z", "--to", "2026-03-01T13:00Z", "--database", url, "--cluster", CLUSTER)
    done = muster("ledger", "export", "--what", "measured", *period)
    lines = {line["gang"]: line for line in csv.DictReader(io.StringIO(done.stdout))}
    assert len(lines) == len(FIRST_HOUR)
    assert (lines["ml/dark"]["measured_seconds"], lines["ml/dark"]["used_microseconds"]) == ("0", "")
    assert (lines["ml/busy"]["start"], lines["ml/busy"]["device_count"]) == ("2026-03-01T12:10:00.000000Z", "2")

    done = muster("ledger", "export", "--format", "focus", *period)
    charged = {line["x_Gang"]: line for line in csv.DictReader(io.StringIO(done.stdout))}
    of = ("x_MeasuredDeviceSeconds", "x_UsedDeviceMicroseconds", "x_MemoryPeakBytes", "x_EnergyMillijoules")
    assert [charged["ml/busy"][name] for name in of] == ["3060", "2250000000", str(4096 * MIB), "540000000"]
    assert [charged["ml/dark"][name] for name in of] == ["0", "", "", ""]

    *_, last = filter(str.strip, muster("ledger", "statement", QUEUE, *period).stdout.splitlines())
    assert " ".join(last.split()[2:]) == "- measured team-a - - - 0.95 h used, 2.15 h idle, of 3.1 h measured"


class Known:
    """A DeviceMeter that answers the same at each call, until it fails."""

    def __init__(self, answers: int = 1_000_000) -> None:
        self.left = answers

    async def samples(
        self, quantity: Quantity, devices: Mapping[str, Iterable[str]], start: datetime, end: datetime
    ) -> Mapping[tuple[str, str], Samples]:
        if not self.left:
            raise RetryError(f"it went away before it said its {quantity}")
        self.left -= 1
        ends = range(int(start.timestamp()) + 60, int(end.timestamp()) + 1, 60)
        return {(driver, uuid): [(at, 7) for at in ends] for driver, uuids in devices.items() for uuid in uuids}


async def test_a_leader_goes_on_where_another_one_stopped_and_no_page_is_recorded_twice(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_recorder, "PAGE", 2)
    await filled(url)
    with pytest.raises(RetryError):
        await record(url, Known(answers=len(Quantity)), now=minutes(65))
    assert len(await recorded(url, AT, minutes(60))) == 2

    # Two that both believe to lead, and an answer that was lost.
    await asyncio.gather(*(record(url, Known(), now=minutes(65)) for _ in range(2)))
    found = await recorded(url, AT, minutes(60))
    assert sorted(found) == sorted(FIRST_HOUR)
    assert found["busy"].measured_seconds == 3600
    assert found["dark"].used_microseconds is None
    assert rows(url, "SELECT count(*) FROM transactions WHERE kind = 'measure'") == [(3,)]
    assert await record(url, Known(), now=minutes(65), epoch=2) == [False]


class Recent:
    """Reads nothing back, and knows whether it was asked to."""

    def __init__(self, trouble: Exception | None = None) -> None:
        self._trouble = trouble
        self.asked = asyncio.Event()

    async def read(self) -> None:
        self.asked.set()
        if self._trouble is not None:
            raise self._trouble


async def test_recording_and_reading_back_do_not_wait_for_each_other(url: str) -> None:
    await filled(url)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        for meter, trouble in ((Known(answers=0), None), (Known(), LedgerUnavailableError("it is away"))):
            recent = Recent(trouble)
            running = asyncio.create_task(a_recorder(ledger, meter, now=minutes(65), recent=recent).run(1))
            async with asyncio.timeout(30):
                await recent.asked.wait()
            running.cancel()
            await asyncio.wait([running])
    assert sorted(await recorded(url, AT, minutes(60))) == sorted(FIRST_HOUR)


async def test_what_a_leader_recorded_is_its_own(url: str) -> None:
    await filled(url)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        recorder = a_recorder(ledger, Known(), now=minutes(65))
        before = await ledger.sequence()
        await recorder.record(1)

        assert [*recorder._writes.others(before + 1, await ledger.sequence())] == []
        (at, entry), *_ = await ledger.entries(before + 1, before + 1)
    assert (at, entry.kind, entry.at) == (before + 1, Kind.MEASURE, minutes(60))


async def test_entries_of_the_present_may_follow_what_is_recorded_of_the_past(url: str) -> None:
    await filled(url)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        await ledger.post(a_grant(1, queue=QueueName("other"), at=minutes(64)), epoch=1)
        await record(url, Known(), now=minutes(65))
        await ledger.post(a_grant(1, queue=QueueName("third"), at=minutes(64)), epoch=1)
        assert (await ledger.load()).at == minutes(64)


async def test_nothing_is_recorded_while_entries_of_that_time_may_wait_for_the_database(url: str) -> None:
    await filled(url)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        assert await a_recorder(ledger, Known(), now=minutes(65), is_current=False).record(1) is False
        await ledger.post(a_grant(1, queue=QueueName("late"), at=minutes(50)), epoch=1)
        assert await a_recorder(ledger, Known(), now=minutes(65)).record(1) is True


TAMPERED = {
    "a changed amount": "UPDATE measured_usage SET used_microseconds = '1' WHERE line = 1",
    "one that was not measured": "UPDATE measured_usage SET energy = '0' WHERE gang = 'ml/dark'",
    "a row that is gone": "DELETE FROM measured_usage WHERE line = 1",
    "a row of no transaction": (
        "INSERT INTO measured_usage SELECT cluster, 999, line, queue, gang_uid, gang, \"user\", 'x', claim, start,"
        " until, devices, measured_seconds, used_microseconds, memory_peak, powered_seconds, energy FROM measured_usage"
        " WHERE line = 1"
    ),
}


@pytest.mark.parametrize("statement", TAMPERED.values(), ids=TAMPERED)
async def test_what_was_recorded_is_proved_by_the_chain(url: str, statement: str) -> None:
    await filled(url)
    await record(url, Known(), now=minutes(65))
    if not statement.startswith("INSERT"):  # which is no change of what is there
        with pytest.raises(Exception, match="append-only"):
            ledgers.run(url, statement)
    ledgers.forge(url, statement)

    async with SqlLedger.open(url, CLUSTER) as ledger:
        finding = (await ledger.verify()).finding
    assert finding is not None
    assert finding.what is What.MEASURED


async def test_a_closing_takes_what_was_recorded_into_its_archive(url: str, tmp_path: Path) -> None:
    await filled(url)
    await record(url, Known(), now=minutes(65))
    order = Order(before=minutes(75), folder=tmp_path / "archive", actor="root", reason="done", at=minutes(90))
    async with SqlLedger.open(url, CLUSTER) as ledger:
        mark = books.usage(await ledger.load(), at=minutes(70), actor="muster")
        assert mark is not None
        await ledger.post(mark, epoch=1)
        closing = await ledger.close_period(order)
        assert closing is not None
        assert (await ledger.verify(archive=order.folder)).ok
    assert rows(url, "SELECT count(*) FROM measured_usage") == [(0,)]
    with gzip.open(order.folder / closing.archive, "rt") as lines:
        (measured,) = [entry for line in lines if (entry := json.loads(line)).get("kind") == Kind.MEASURE]
    assert measured["reason"] == measurements.reason_of(measured["measured"])
    assert len(measured["measured"]) == len(FIRST_HOUR)

    # What is behind it is recorded as before; nothing is asked for again of what is closed.
    assert await record(url, Known(), now=minutes(125), times=2) == [True, False]
    assert sorted(await recorded(url, minutes(60), minutes(120))) == ["dark", "idle", "next", "slice"]


async def test_rows_that_were_changed_are_not_closed(url: str, tmp_path: Path) -> None:
    await filled(url)
    await record(url, Known(), now=minutes(65))
    ledgers.forge(url, TAMPERED["a changed amount"])
    order = Order(before=minutes(75), folder=tmp_path / "archive", actor="root", reason="done", at=minutes(90))
    async with SqlLedger.open(url, CLUSTER) as ledger:
        mark = books.usage(await ledger.load(), at=minutes(70), actor="muster")
        assert mark is not None
        await ledger.post(mark, epoch=1)
        with pytest.raises(LedgerCorruptError, match="rows of measured use"):
            await ledger.close_period(order)
