"""Gangs that are idle by the books are looked at once more before anything follows from it."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

import pytest

from admission.accounting.device_samples import BusiestSteps, Quantity, Samples
from admission.api.device_use.idle import IdleDevices
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster import queues
from admission.api.muster.ledger_entries import Allocation, Holding, MeasuredUsage, Placement
from admission.api.muster.queues import Queue
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
    """A DeviceMeter of a device that was in use for a part of the latest minutes.

    asked: the times. meanwhile: is called while the server answers.
    """

    def __init__(self, *millionths: int, is_away: bool = False) -> None:
        self._latest = millionths
        self._is_away = is_away
        self.meanwhile: Callable[[], object] = lambda: None
        self.asked: list[tuple[datetime, datetime]] = []

    async def samples(
        self, quantity: Quantity, devices: Mapping[str, Iterable[str]], start: datetime, end: datetime
    ) -> Mapping[tuple[str, str], Samples]:
        assert (quantity, devices) == (Quantity.UTILIZATION, {DRIVER: ["GPU-0"]})
        self.asked.append((start, end))
        self.meanwhile()
        if self._is_away:
            raise RetryError("it is away")
        ends = range(int(start.timestamp()) + 60, int(end.timestamp()) + 1, 60)
        values = (*(0 for _ in ends), *self._latest)[-len(ends) :]
        return {(DRIVER, "GPU-0"): [one for one in zip(ends, values, strict=True) if one[1] >= 0]}


def a_placement(number: int, *more: str) -> Placement:
    """Return a gang of the queue of its number with one device, and with more claims of one device each."""
    holdings = [a_holding(f"c-{number}", f"gpu-{number}"), *(a_holding(claim, claim) for claim in more)]
    return Placement(
        gang_uid=GangUid(f"g-{number}"),
        gang=f"ml/g-{number}",
        queue=QueueName(f"q-{number}"),
        holdings={one.claim_uid: one for one in holdings},
        reserved_at=NOON,
    )


def a_holding(claim: str, device: str) -> Holding:
    given = (RequestDevice(request="r", device=DeviceId(DRIVER, "a", device)),)
    return Holding(claim_uid=Uid(claim), claim=f"ml/{claim}", devices=given, charge={})


def a_queue(number: int, action: str, below: int = 5) -> Queue:
    idle = {"after": "1h", "action": action, "belowPercent": below}
    return queues.decode({"metadata": {"name": f"q-{number}"}, "spec": {"idle": idle}})


class World:
    """Gangs that were idle from noon to two, each with one device and a queue with one of these actions."""

    def __init__(self, *actions: str) -> None:
        numbers = range(max(1, len(actions)))
        self.queues = {queue.name: queue for queue in (a_queue(n, (actions or ("Evict",))[n]) for n in numbers)}
        self.placements = {one.gang_uid: one for one in map(a_placement, numbers)}
        self._gangs = IdleGangs(fresh=2 * HOUR)

    async def idle(self, meter: Meter, now: datetime) -> bool:
        """Return whether a gang is known to be idle up to now."""
        await self._gangs.read(self._rows(), NOON + 2 * HOUR, self.placements, replaces=True)
        self.update(now)
        uuids = DeviceUuids()
        uuids.by_device[DEVICE] = "GPU-0"
        check = IdleCheck(
            meter=meter, idle=self._gangs, uuids=uuids, placements=lambda: self.placements, step=60, delay=300
        )
        await check.check(now)
        return bool(self.update(now))

    def update(self, now: datetime) -> Mapping[GangUid, IdleDevices]:
        """Return which gangs are known to be idle up to now, as a cycle does."""
        return self._gangs.update(self.queues, self.placements, now)

    async def _rows(self) -> AsyncIterator[MeasuredUsage]:
        for placement in tuple(self.placements.values()):
            for holding in placement.holdings.values():
                yield MeasuredUsage(
                    queue=placement.queue,
                    gang_uid=placement.gang_uid,
                    gang=placement.gang,
                    user="",
                    claim_uid=holding.claim_uid,
                    claim=holding.claim,
                    start=NOON,
                    end=NOON + 2 * HOUR,
                    devices=1,
                    measured_seconds=7200,
                    used_microseconds=0,
                )


END = NOON + 2 * HOUR
MISSING = -1

LATE = [0] * 5

CASES = {
    "it has done nothing since": (Meter(), 40 * MINUTE, True),
    "a little": (Meter(499_999, *LATE), 40 * MINUTE, True),
    "it began before late samples": (Meter(500_000, *LATE), 40 * MINUTE, False),
    "of a minute nothing is known": (Meter(MISSING, *LATE), 40 * MINUTE, False),
    "it has worked for long": (Meter(*[900_000] * 30), 40 * MINUTE, False),
    "it has worked for eight minutes": (Meter(*[100_000] * 8), 40 * MINUTE, False),
    "it began a minute ago": (Meter(50_000), 40 * MINUTE, False),
    "it began four minutes ago": (Meter(50_000, 0, 0, MISSING), 40 * MINUTE, False),
    "late samples are low": (Meter(*[49_999] * 5), 40 * MINUTE, True),
    "late samples may still come": (Meter(*[MISSING] * 5), 40 * MINUTE, True),
}


@pytest.mark.parametrize(("meter", "later", "is_idle"), CASES.values(), ids=CASES)
async def test_a_gang_is_idle_up_to_now_if_it_has_done_nothing_since(
    meter: Meter, later: timedelta, is_idle: bool
) -> None:
    assert await World().idle(meter, END + later) is is_idle
    assert meter.asked == [(END + later - 15 * MINUTE, END + later)], "up to now, and ten minutes before late samples"


async def test_no_time_is_looked_at_that_is_recorded() -> None:
    meter = Meter()
    assert await World().idle(meter, END + 7 * MINUTE + timedelta(seconds=20))
    assert meter.asked == [(END, END + 7 * MINUTE)]
    assert not await World().idle(Meter(50_000), END + 5 * MINUTE)
    assert await World().idle(Meter(*[MISSING] * 5), END + 5 * MINUTE), "late samples may still come"
    meter = Meter()
    assert await World().idle(meter, END + timedelta(seconds=59))
    assert not meter.asked


async def test_of_many_devices_of_a_claim_the_mean_counts() -> None:
    """One that works is less than 5 in 100 of thirty; of two, one of which is missing, it is all that is known."""
    held = [DeviceId(DRIVER, "a", f"gpu-{number}") for number in range(30)]
    allocation = Allocation(
        queue=QueueName("q"),
        gang_uid=GangUid("g"),
        gang="ml/g",
        user="",
        claim_uid=Uid("c"),
        claim="ml/c",
        devices=tuple(held),
        start=NOON,
        end=NOON,
    )
    steps = BusiestSteps([allocation], {device: device.device for device in held}, after=60)
    steps.add({(DRIVER, device.device): [(60, 1_000_000), (120, 0)] for device in held[1:]})
    assert steps.percent() == {"c": 0}
    steps.add({(DRIVER, "gpu-0"): [(120, 1_000_000)]})
    assert steps.percent() == {"c": 3}
    steps.add({(DRIVER, "gpu-0"): [(180, 1_000_000)]})
    assert steps.percent() == {"c": 100}


async def test_where_nothing_follows_from_it_nobody_is_asked() -> None:
    meter = Meter()
    assert not await World("Report").idle(meter, END + HOUR)
    assert not meter.asked


async def test_while_the_server_is_away_no_gang_is_idle_up_to_now() -> None:
    world = World("PreemptFirst")
    with pytest.raises(RetryError):
        await world.idle(Meter(is_away=True), END + HOUR)
    assert not world.update(END + HOUR)


async def test_a_gang_of_which_nothing_was_asked_is_not_idle_up_to_now() -> None:
    """Its queue says Evict from the cycle on that runs while the server answers about another gang."""
    world, meter, now = World("Evict", "Report"), Meter(), END + 40 * MINUTE

    def edit() -> None:
        queue = a_queue(1, "Evict")
        world.queues[queue.name] = queue
        world.update(now)

    meter.meanwhile = edit
    await world.idle(meter, now)
    assert set(world.update(now)) == {"g-0"}


async def test_an_answer_holds_for_the_policy_that_was_asked_for() -> None:
    """Of 1 in 100 in use, below 5 says that it is idle, and below 1 says that it is not."""
    world, meter, now = World(), Meter(100_000, *LATE), END + 40 * MINUTE
    assert await world.idle(meter, now)
    queue = a_queue(0, "Evict", below=1)
    world.queues[queue.name] = queue
    assert not world.update(now)


async def test_a_claim_that_came_meanwhile_is_in_use() -> None:
    world, meter, now = World(), Meter(), END + 40 * MINUTE

    def grow() -> None:
        one = a_placement(0, "c-9")
        world.placements = {one.gang_uid: one}

    meter.meanwhile = grow
    assert not await world.idle(meter, now)
