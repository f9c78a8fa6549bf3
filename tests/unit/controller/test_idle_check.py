"""Gangs that are idle by the books are looked at once more before anything follows from it."""

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime, timedelta

import pytest

from admission.accounting.device_samples import Quantity, Samples
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster import queues
from admission.api.muster.ledger_entries import Holding, MeasuredUsage, Placement
from admission.api.values.names import GangUid, QueueName, Uid
from admission.controller.idle_check import IdleCheck
from admission.errors import RetryError
from admission.status.device_uuids import DeviceUuids
from admission.status.idle_gangs import IdleGangs

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
DRIVER = "gpu.example.com"
DEVICE = DeviceId(DRIVER, "a", "gpu-0")


class Meter:
    """A DeviceMeter of a device that was in use for a part of the latest minutes. asked: the times."""

    def __init__(self, *millionths: int, is_away: bool = False) -> None:
        self._latest = millionths
        self._is_away = is_away
        self.asked: list[tuple[datetime, datetime]] = []

    async def samples(
        self, quantity: Quantity, devices: Mapping[str, Iterable[str]], start: datetime, end: datetime
    ) -> Mapping[tuple[str, str], Samples]:
        assert (quantity, devices) == (Quantity.UTILIZATION, {DRIVER: ["GPU-0"]})
        self.asked.append((start, end))
        if self._is_away:
            raise RetryError("it is away")
        ends = range(int(start.timestamp()) + 60, int(end.timestamp()) + 1, 60)
        values = (*(0 for _ in ends), *self._latest)[-len(ends) :]
        return {(DRIVER, "GPU-0"): [one for one in zip(ends, values, strict=True) if one[1] >= 0]}


class World:
    """A gang that was idle from noon to two, with one device."""

    def __init__(self, action: str = "Evict") -> None:
        given = (RequestDevice(request="r", device=DEVICE),)
        holding = Holding(claim_uid=Uid("c"), claim="ml/c", devices=given, charge={})
        placement = Placement(
            gang_uid=GangUid("g"),
            gang="ml/g",
            queue=QueueName("q"),
            holdings={holding.claim_uid: holding},
            reserved_at=NOON,
        )
        spec = {"idle": {"after": "1h", "action": action}}
        self._queue = queues.decode({"metadata": {"name": "q"}, "spec": spec})
        self._placements = {placement.gang_uid: placement}
        self._gangs = IdleGangs(fresh=2 * HOUR)

    async def idle(self, meter: Meter, now: datetime) -> bool:
        """Return whether the gang is known to be idle up to now."""
        await self._gangs.read(self._rows(), NOON + 2 * HOUR, self._placements, replaces=True)
        self._update(now)
        uuids = DeviceUuids()
        uuids.by_device[DEVICE] = "GPU-0"
        check = IdleCheck(
            meter=meter, idle=self._gangs, uuids=uuids, placements=lambda: self._placements, step=60, delay=300
        )
        await check.check(now)
        return bool(self._update(now))

    def _update(self, now: datetime) -> object:
        return self._gangs.update({self._queue.name: self._queue}, self._placements, now)

    async def _rows(self) -> AsyncIterator[MeasuredUsage]:
        yield MeasuredUsage(
            queue=QueueName("q"),
            gang_uid=GangUid("g"),
            gang="ml/g",
            user="",
            claim_uid=Uid("c"),
            claim="ml/c",
            start=NOON,
            end=NOON + 2 * HOUR,
            devices=1,
            measured_seconds=7200,
            used_microseconds=0,
        )


END = NOON + 2 * HOUR
MISSING = -1

CASES = {
    "it has done nothing since": (Meter(), 40 * MINUTE, True),
    "a little": (Meter(499_999), 40 * MINUTE, True),
    "it began a minute ago": (Meter(500_000), 40 * MINUTE, False),
    "of a minute nothing is known": (Meter(MISSING), 40 * MINUTE, False),
    "it has worked for long": (Meter(*[900_000] * 30), 40 * MINUTE, False),
}


@pytest.mark.parametrize(("meter", "later", "is_idle"), CASES.values(), ids=CASES)
async def test_a_gang_is_idle_up_to_now_if_it_has_done_nothing_since(
    meter: Meter, later: timedelta, is_idle: bool
) -> None:
    assert await World().idle(meter, END + later) is is_idle
    assert meter.asked == [(END + later - 15 * MINUTE, END + later - 5 * MINUTE)], "the latest ten minutes"


async def test_no_time_is_looked_at_that_is_recorded() -> None:
    meter = Meter()
    assert await World().idle(meter, END + 7 * MINUTE + timedelta(seconds=20))
    assert meter.asked == [(END, END + 2 * MINUTE)]
    assert await World().idle(Meter(1_000_000), END + 5 * MINUTE), "late samples may still come"


async def test_where_nothing_follows_from_it_nobody_is_asked() -> None:
    meter = Meter()
    assert not await World("Report").idle(meter, END + HOUR)
    assert not meter.asked


async def test_while_the_server_is_away_no_gang_is_idle_up_to_now() -> None:
    world = World("PreemptFirst")
    with pytest.raises(RetryError):
        await world.idle(Meter(is_away=True), END + HOUR)
    assert not world._update(END + HOUR)
