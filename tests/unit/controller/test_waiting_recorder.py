"""How long gangs wait is counted to the second, by queue and hour, whatever ends in between."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from admission.api.capacity import gang_shapes
from admission.api.capacity.gang_shapes import PodShape
from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.ledger_entries import Waited, WaitingHour, WaitingShape
from admission.api.values.names import GANG, GANG_SIZE, GangUid, QueueName
from admission.controller import waiting_recorder
from admission.controller.waiting_recorder import KEPT, WaitingRecorder
from admission.cycle.state.result import CycleResult
from admission.errors import LedgerUnavailableError
from admission.workloads import gangs as workloads_gangs
from tests.builders import CLASS, ClusterBuilder, a_cluster

START = datetime(2026, 11, 1, 12, 50, tzinfo=UTC)
NOON, ONE = START.replace(minute=0), START.replace(hour=13, minute=0)
A, B = QueueName("a"), QueueName("b")


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


class Hours:
    """The twin of the port `WaitingLog`. An `error` is raised instead, after the hours were written or before."""

    def __init__(self) -> None:
        self.hours: dict[tuple[datetime, str], int] = {}
        self.shapes: dict[tuple[datetime, str, str, str], int] = {}
        self.error: Exception | None = None
        self.loses_answers = False

    async def waiting(self, start: datetime, end: datetime) -> Waited:
        if self.error is not None and not self.loses_answers:
            raise self.error
        hours = [
            WaitingHour(QueueName(queue), hour, n) for (hour, queue), n in self.hours.items() if start <= hour < end
        ]
        shapes = [
            WaitingShape(QueueName(queue), namespace, day, shape, n)
            for (day, queue, namespace, shape), n in self.shapes.items()
            if start <= day < end
        ]
        return Waited(hours, shapes)

    async def write_waiting(self, waited: Waited, *, epoch: int, keep_from: datetime) -> None:
        assert epoch == 1
        if self.error is None or self.loses_answers:
            self.hours |= {(hour.hour, hour.queue): hour.seconds for hour in waited.hours}
            self.hours = {key: seconds for key, seconds in self.hours.items() if key[0] >= keep_from}
            days = {one.day for one in waited.shapes}
            self.shapes = {key: n for key, n in self.shapes.items() if key[0] not in days and key[0] >= keep_from}
            self.shapes |= {(one.day, one.queue, one.namespace, one.shape): one.seconds for one in waited.shapes}
        if self.error is not None:
            raise self.error


def gangs(*waiting: QueueName, running: int = 0) -> CycleResult:
    """Return the result of a cycle after which these wait, each in its queue, the first after an eviction."""
    phases = [(queue, Phase.PENDING if at else Phase.EVICTED) for at, queue in enumerate(waiting)]
    phases += [(A, Phase.RUNNING)] * running
    return CycleResult(
        gangs=tuple(
            GangReport(uid=GangUid(f"uid-{at}"), namespace="ns", name=f"g-{at}", queue=queue, size=1, phase=phase)
            for at, (queue, phase) in enumerate(phases)
        )
    )


async def test_gangs_that_wait_are_counted_by_the_hour() -> None:
    clock, hours = Clock(), Hours()
    recorder = WaitingRecorder(hours, clock)
    recorder.observe(gangs(A, A, B, running=3))
    clock.now += timedelta(minutes=20)
    recorder.observe(gangs(A, running=4))
    clock.now += timedelta(minutes=5)

    await recorder.write(1)

    assert hours.hours == {(NOON, A): 1_200, (NOON, B): 600, (ONE, A): 1_500, (ONE, B): 600}


@pytest.mark.parametrize("loses_answers", [False, True])
async def test_a_write_that_fails_is_done_again_and_counts_nothing_twice(loses_answers: bool) -> None:
    clock, hours = Clock(), Hours()
    recorder = WaitingRecorder(hours, clock)
    recorder.observe(gangs(A))
    clock.now += timedelta(minutes=15)
    hours.error, hours.loses_answers = LedgerUnavailableError("away"), loses_answers
    for _ in range(2):
        with pytest.raises(LedgerUnavailableError):
            await recorder.write(1)
    hours.error = None
    clock.now += timedelta(minutes=1)

    await recorder.write(1)

    assert hours.hours == {(NOON, A): 600, (ONE, A): 360}


async def test_a_new_leader_goes_on_from_what_was_written() -> None:
    clock, hours = Clock(), Hours()
    hours.hours = {(NOON, A): 1_000, (NOON - KEPT, A): 5}
    recorder = WaitingRecorder(hours, clock)
    recorder.observe(gangs(A))
    for _ in range(2):
        clock.now += timedelta(minutes=2)
        await recorder.write(1)

    assert hours.hours == {(NOON, A): 1_240}, "and what nobody is shown any more is removed"


DAY = START.replace(hour=0, minute=0)


def waiting(builder: ClusterBuilder) -> CycleResult:
    """Return the result of a cycle after which all gangs of a cluster wait."""
    snapshot = builder.snapshot()
    groups = {group.uid: group for group in workloads_gangs.groups(snapshot, {})}
    reports = [
        GangReport(
            uid=group.uid,
            namespace=group.identity.namespace,
            name=group.identity.name,
            queue=group.queue,
            size=group.identity.size,
            phase=Phase.PENDING,
        )
        for group in groups.values()
    ]
    return CycleResult(gangs=tuple(reports), groups=groups, snapshot=snapshot)


def titles(log: Hours) -> dict[tuple[datetime, str, str], int]:
    """Return for how long shapes have waited, by day, queue and title."""
    return {
        (day, queue, gang_shapes.parse(text).title if text else ""): seconds
        for (day, queue, _, text), seconds in log.shapes.items()
    }


async def test_what_gangs_that_wait_ask_for_is_counted_by_the_day() -> None:
    clock, log = Clock(), Hours()
    clock.now = DAY + timedelta(hours=23)
    recorder = WaitingRecorder(log, clock)
    town = a_cluster().queue("a").queue("b").job("one", queue="a", pods=2, gpus=4).job("two", queue="a", pods=2, gpus=4)
    recorder.observe(waiting(town.job("other", queue="b", pods=1)))
    clock.now += timedelta(hours=2)
    await recorder.write(1)

    hour, pair, single = 3600, f"2x4:{CLASS} cpu=1", f"1x1:{CLASS} cpu=1"
    late = DAY + timedelta(days=1)
    expected = {(day, "a", pair): 2 * hour for day in (DAY, late)} | {(day, "b", single): hour for day in (DAY, late)}
    assert titles(log) == expected

    successor = WaitingRecorder(log, clock)
    successor.observe(waiting(a_cluster().queue("a").job("one", queue="a", pods=2, gpus=4)))
    clock.now += timedelta(hours=1)
    await successor.write(1)
    assert titles(log) == expected | {(late, "a", pair): 3 * hour}


async def test_a_gang_that_is_not_complete_waits_without_a_shape() -> None:
    clock, log = Clock(), Hours()
    recorder = WaitingRecorder(log, clock)
    half = a_cluster().queue("a").pod("p", queue="a", labels={GANG: "g"}, annotations={GANG_SIZE: "2"})
    recorder.observe(waiting(half))
    clock.now += timedelta(minutes=1)
    recorder.observe(waiting(half.pod("q", queue="a", labels={GANG: "g"}, annotations={GANG_SIZE: "2"})))
    clock.now += timedelta(minutes=1)
    await recorder.write(1)

    assert titles(log) == {(DAY, "a", ""): 60, (DAY, "a", f"2x1:{CLASS} cpu=1"): 60}


async def test_pods_that_are_made_anew_with_other_claims_have_another_shape() -> None:
    """Those of a Gang, whose UID stays."""
    clock, log = Clock(), Hours()
    recorder = WaitingRecorder(log, clock)
    for name, gpus in (("a", 1), ("b", 2)):
        labels = {GANG: "g"}
        builder = a_cluster().queue("a").pod(name, queue="a", gpus=gpus, labels=labels, annotations={GANG_SIZE: "1"})
        recorder.observe(waiting(builder))
        clock.now += timedelta(minutes=1)
    await recorder.write(1)

    assert titles(log) == {(DAY, "a", f"1x{gpus}:{CLASS} cpu=1"): 60 for gpus in (1, 2)}


async def test_a_new_leader_goes_on_where_nothing_waited_at_first() -> None:
    clock, log = Clock(), Hours()
    log.hours, log.shapes = {(NOON, A): 1_000}, {(DAY, A, "", ""): 1_000}
    recorder = WaitingRecorder(log, clock)
    for waits in ((), (A,)):
        recorder.observe(gangs(*waits))
        clock.now += timedelta(minutes=2)
        await recorder.write(1)

    assert (log.hours, log.shapes) == ({(NOON, A): 1_120}, {(DAY, A, "", ""): 1_120})


@pytest.mark.parametrize("away", [timedelta(0), timedelta(hours=26)])
async def test_a_new_leader_overwrites_nothing_of_hours_and_days_that_have_ended(away: timedelta) -> None:
    """It begins half a minute before midnight, and the ledger may be away for more than a day then."""
    clock, log = Clock(), Hours()
    clock.now = DAY + timedelta(hours=23, minutes=59, seconds=30)
    late, asked = DAY + timedelta(hours=23), gang_shapes.of_pods([PodShape(count=1)])
    assert asked is not None
    shape = asked.text
    log.shapes = {(DAY, "a", "team", shape): 80_000, (DAY, "b", "team", shape): 70_000}
    log.hours = {(late, "a"): 3_500, (DAY, "a"): 9}
    recorder = WaitingRecorder(log, clock)
    recorder.observe(waiting(a_cluster().queue("a").job("one", queue="a", pods=2, gpus=4)))
    log.error = LedgerUnavailableError("away") if away else None
    clock.now += timedelta(minutes=1) + away
    if away:
        with pytest.raises(LedgerUnavailableError):
            await recorder.write(1)
    log.error = None
    await recorder.write(1)

    assert log.hours[late, "a"] == 3_530
    assert log.hours[DAY, "a"] == 9
    assert {key: n for key, n in log.shapes.items() if key[3] == shape} == {
        (DAY, "a", "team", shape): 80_000,
        (DAY, "b", "team", shape): 70_000,
    }
    assert sum(n for key, n in log.shapes.items() if key[0] == DAY) == 150_030
    assert sum(log.hours.values()) == 3_509 + 60 + away.total_seconds()


@pytest.mark.parametrize("there", [0, 1])
@pytest.mark.parametrize("is_told", [True, False])
async def test_a_gang_has_a_shape_once_its_claims_are_there(there: int, is_told: bool) -> None:
    """Kubernetes makes claims after their pods. Not told: nothing else changes, as in a queue that is stopped."""
    clock, log = Clock(), Hours()
    recorder = WaitingRecorder(log, clock)
    full = waiting(a_cluster().queue("a").job("one", queue="a", pods=2, gpus=4))
    claims = dict(list(full.snapshot.claims.items())[:there])
    recorder.observe(replace(full, snapshot=replace(full.snapshot, claims=claims)))
    clock.now += timedelta(minutes=1)
    recorder.observe(replace(full, gangs=tuple(map(replace, full.gangs))) if is_told else full)
    await recorder.write(1)
    clock.now += timedelta(minutes=30)
    await recorder.write(1)

    assert titles(log) == {(DAY, "a", ""): 60, (DAY, "a", f"2x4:{CLASS} cpu=1"): 30 * 60}


async def test_of_a_day_the_shapes_are_kept_that_have_waited_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_recorder, "MOST_SHAPES", 2)
    clock, log = Clock(), Hours()
    recorder = WaitingRecorder(log, clock)
    for number in range(1, 8):
        recorder.observe(waiting(a_cluster().queue("a").job("j", queue="a", pods=number)))
        clock.now += timedelta(minutes=number)
    await recorder.write(1)

    found = titles(log)
    assert found == {(DAY, "a", f"7x1:{CLASS} cpu=1"): 420, (DAY, "a", f"6x1:{CLASS} cpu=1"): 360, (DAY, "a", ""): 900}
    assert sum(found.values()) == sum(log.hours.values())
