"""How long gangs wait is counted to the second, by queue and hour, whatever ends in between."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.ledger_entries import WaitingHour
from admission.api.values.names import GangUid, QueueName
from admission.controller.waiting_recorder import KEPT, WaitingRecorder
from admission.cycle.state.result import CycleResult
from admission.errors import LedgerUnavailableError

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
        self.error: Exception | None = None
        self.loses_answers = False

    async def waiting(self, start: datetime, end: datetime) -> Sequence[WaitingHour]:
        if self.error is not None and not self.loses_answers:
            raise self.error
        return [
            WaitingHour(QueueName(queue), hour, n) for (hour, queue), n in self.hours.items() if start <= hour < end
        ]

    async def write_waiting(self, hours: Sequence[WaitingHour], *, epoch: int, keep_from: datetime) -> None:
        assert epoch == 1
        if self.error is None or self.loses_answers:
            self.hours |= {(hour.hour, hour.queue): hour.seconds for hour in hours}
            self.hours = {key: seconds for key, seconds in self.hours.items() if key[0] >= keep_from}
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
