"""What the loop of cycles says in the log."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from admission.controller import admission_loop
from admission.cycle.state.result import CycleResult
from admission.errors import ClusterUnavailableError
from admission.scheduling.checks import demand
from tests.builders import NOON, a_cluster
from tests.unit.cycle.jobs import SECOND, Jobs, Play
from tests.unit.cycle.test_cycle import Cluster, Ledger, a_leader


class Enough(BaseException):
    pass


class Always:
    """The port Changes where something changes all the time."""

    async def wait(self) -> None:
        await asyncio.sleep(0)


async def cycles(ledger: Ledger, *steps: tuple[Callable[[], None], datetime]) -> list[str]:
    """Run a cycle for each step: what happens before it, and what time it is then. Return the warnings."""
    leader = a_leader(Cluster(a_cluster().queue("q", gpus=1)), ledger)
    left = list(steps)

    def clock() -> datetime:
        if not left:
            raise Enough
        happens, time = left[0]
        happens()
        return time

    def observe(result: CycleResult, seconds: float) -> None:
        left.pop(0)

    pace = admission_loop.Pace(resync=0.0, debounce=0.0)
    with capture_logs() as logs, contextlib.suppress(Enough):
        await admission_loop.admit(leader, Always(), pace=lambda: pace, clock=clock, observe=observe)
    return [str(log["event"]) for log in logs]


async def test_every_decision_is_a_log_line_with_the_uid_of_the_gang() -> None:
    builder = a_cluster().node("a", gpus=2).queue("q", gpus=2).job("fits", queue="q").job("big", queue="q", pods=3)
    leader = a_leader(Cluster(builder), Ledger())
    results: list[CycleResult] = []

    def observe(result: CycleResult, seconds: float) -> None:
        results.append(result)
        if len(results) == 3:
            raise Enough

    pace = admission_loop.Pace(resync=0.0, debounce=0.0)
    with capture_logs() as logs, contextlib.suppress(Enough):
        await admission_loop.admit(leader, Always(), pace=lambda: pace, clock=lambda: NOON, observe=observe)

    admitted, held = logs
    known = {"log_level": "info", "queue": "q"}
    assert admitted.items() >= {**known, "event": "admitted", "gang_uid": "job-fits", "pods": 1}.items()
    assert admitted["charges"] == {"claims": "1", "gpus": "1"}
    assert held.items() >= {**known, "event": "held", "gang_uid": "job-big", "reason": "QuotaExceeded"}.items()
    assert held["details"]["needed"] == "3"


async def test_the_eviction_of_a_gang_is_a_log_line_with_the_reason_and_the_preemptor() -> None:
    preemption = {"withinQueue": "LowerPriority"}
    cluster = Jobs(a_cluster().node("a", gpus=2).queue("q", gpus=2, preemption=preemption))
    play = Play(cluster)
    cluster.submit("low", queue="q", pods=2)
    await play.forget_changes(2)
    cluster.submit("high", queue="q", priority=10)
    cluster.make_pods()

    def observe(result: CycleResult, _seconds: float) -> None:
        cluster.now += SECOND
        if result.evicted:
            raise Enough

    pace = admission_loop.Pace(resync=0.0, debounce=0.0)
    with capture_logs() as logs, contextlib.suppress(Enough):
        await admission_loop.admit(play.leader, Always(), pace=lambda: pace, clock=lambda: cluster.now, observe=observe)
    [evicted] = [log for log in logs if log["event"] == "evicted"]

    assert evicted.items() >= {"queue": "q", "gang_uid": "job-low", "reason": "Preempted"}.items()
    assert play.name_of(evicted["made_room_for"]) == "high"
    assert "priority 10, above 0" in evicted["message"]


async def test_the_first_cycle_of_a_term_runs_before_the_view_is_confirmed() -> None:
    leader = a_leader(Cluster(a_cluster().node("a", gpus=2).queue("q", gpus=2).job("fits", queue="q")), Ledger())
    steps: list[str] = []

    def observe(result: CycleResult, seconds: float) -> None:
        steps.append(f"granted {len(result.granted)}, {'certain' if leader.term.is_confirmed else 'uncertain'}")
        if len(steps) == 4:
            raise Enough

    async def confirm() -> None:
        steps.append("confirmed")

    pace = admission_loop.Pace(resync=60.0, debounce=0.0)
    with contextlib.suppress(Enough):
        await admission_loop.admit(
            leader, Always(), pace=lambda: pace, clock=lambda: NOON, observe=observe, confirm=confirm
        )

    assert steps == ["granted 1, uncertain", "confirmed", "granted 0, certain", "granted 0, certain"]


async def test_a_view_that_does_not_catch_up_ends_the_term() -> None:
    leader = a_leader(Cluster(a_cluster().queue("q", gpus=1)), Ledger())

    async def confirm() -> None:
        raise ClusterUnavailableError("behind")

    pace = admission_loop.Pace(resync=0.0, debounce=0.0)
    with pytest.raises(ClusterUnavailableError):
        await admission_loop.admit(
            leader, Always(), pace=lambda: pace, clock=lambda: NOON, observe=lambda *_: None, confirm=confirm
        )
    assert not leader.term.is_confirmed

    asked: list[bool] = []

    async def confirmed() -> None:
        asked.append(leader.term.is_confirmed)

    def observe(result: CycleResult, seconds: float) -> None:
        asked.append(leader.term.is_confirmed)
        raise Enough

    with contextlib.suppress(Enough):
        await admission_loop.admit(
            leader, Always(), pace=lambda: pace, clock=lambda: NOON, observe=observe, confirm=confirmed
        )
    assert asked == [False, True], "the next term does nothing before it has"


class After:
    """A view that changes a while after each call."""

    SECONDS = 0.05

    async def wait(self) -> None:
        await asyncio.sleep(self.SECONDS)


@pytest.mark.parametrize(
    ("used", "longest"),
    [(0.0, 0.01), (0.1, 0.2 - After.SECONDS), (100.0, admission_loop.LONGEST_PAUSE - After.SECONDS)],
)
async def test_the_pause_follows_the_processor_time_of_the_cycle_and_begins_at_its_end(
    used: float, longest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that comes when the pause is over, or after a cycle that only waited for others, does not wait."""
    leader, sleep, paused = a_leader(Cluster(a_cluster().queue("q", gpus=1)), Ledger()), asyncio.sleep, list[float]()
    reading = itertools.count()

    async def recorded(seconds: float) -> None:
        if seconds != After.SECONDS:
            paused.append(seconds)
        await sleep(0 if seconds != After.SECONDS else seconds)

    def observe(result: CycleResult, seconds: float) -> None:
        if len(paused) == 2:
            raise Enough

    monkeypatch.setattr(time, "process_time", lambda: next(reading) * used)
    monkeypatch.setattr(asyncio, "sleep", recorded)
    pace = admission_loop.Pace(resync=60.0, debounce=0.01)
    with contextlib.suppress(Enough):
        await admission_loop.admit(leader, After(), pace=lambda: pace, clock=lambda: NOON, observe=observe)

    assert all(0.01 <= one <= longest for one in paused), paused
    assert len(paused) == 2


async def test_a_clock_behind_the_ledger_is_logged_once_each_time() -> None:
    early, right = (lambda: None, NOON), (lambda: None, NOON + timedelta(hours=1))

    told = await cycles(Ledger(), right, early, early, right, early)

    assert told == ["the clock is behind the books, whose time is kept instead; set the clock right"] * 2


async def test_a_ledger_outage_is_logged_when_entries_begin_to_wait_and_when_none_waits() -> None:
    ledger = Ledger()

    def away(*, is_away: bool) -> Any:
        return lambda: setattr(ledger, "away", is_away)

    hour = timedelta(hours=1)
    here, gone = away(is_away=False), away(is_away=True)
    told = await cycles(ledger, (here, NOON), (gone, NOON + hour), (gone, NOON + hour), (here, NOON + hour))

    assert told == [
        "the ledger's database is away; what happens is kept until it is back",
        "the ledger's database has what happened meanwhile",
    ]


async def test_a_defect_is_logged_once_with_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(group: Any, *_: Any) -> Any:
        raise ZeroDivisionError(f"for {group.key}")

    monkeypatch.setattr(demand, "demands", fails)
    leader = a_leader(Cluster(a_cluster().node("a", gpus=1).queue("q", gpus=1).job("train", queue="q")), Ledger())
    results: list[CycleResult] = []

    def observe(result: CycleResult, seconds: float) -> None:
        results.append(result)
        if len(results) == 3:
            raise Enough

    pace = admission_loop.Pace(resync=0.0, debounce=0.0)
    with capture_logs() as logs, contextlib.suppress(Enough):
        await admission_loop.admit(leader, Always(), pace=lambda: pace, clock=lambda: NOON, observe=observe)

    (log,) = [log for log in logs if log["event"] == "a gang could not be dealt with"]
    assert (log["log_level"], log["during"]) == ("error", "planning")
    assert isinstance(log["exc_info"], ZeroDivisionError)
    assert str(log["exc_info"]) == f"for {log['gang']}"
    assert [len(result.defects) for result in results] == [1, 1, 1]
