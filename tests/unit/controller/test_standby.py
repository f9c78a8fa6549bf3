"""Who stands by keeps one leader warm and hands it over to the term; whatever a preload trips over, a term begins."""

import asyncio

import pytest
from structlog.testing import capture_logs

from admission.controller import standby
from admission.controller.standby import Standby
from admission.errors import RetryError


class State:
    preloads = 0


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "PAUSE", 0.0)
    monkeypatch.setattr(standby, "PAUSE_FACTOR", 0)


async def turns() -> None:
    """Let others have their turns."""
    for _ in range(50):
        await asyncio.sleep(0)


async def stand_by(standing_by: Standby[State]) -> None:
    async with standing_by.preloading():
        await turns()


async def preload(leader: State) -> None:
    leader.preloads += 1


async def test_the_preloaded_leader_state_is_used_for_one_term_only() -> None:
    made = [State(), State()]
    left = iter(made)
    standing_by = Standby(lambda: next(left), preload)
    await stand_by(standing_by)
    assert made[0].preloads > 1

    async with standing_by.take_over() as first:
        assert first is made[0]
    async with standing_by.take_over() as second:
        assert (second, second.preloads) == (made[1], 0)


async def test_a_standby_does_not_preload_during_a_term() -> None:
    leader = State()
    standing_by = Standby(lambda: leader, preload)
    await stand_by(standing_by)
    assert leader.preloads > 1

    async with standing_by.preloading(), standing_by.take_over():
        preloads = leader.preloads
        await turns()
        assert leader.preloads == preloads


async def test_a_term_waits_for_a_preload_that_is_under_way() -> None:
    began, may_end, order = asyncio.Event(), asyncio.Event(), list[str]()

    async def slow(_: State) -> None:
        began.set()
        await may_end.wait()
        order.append("preloaded")

    standing_by = Standby(State, slow)

    async def term() -> None:
        async with standing_by.take_over():
            order.append("leads")

    async with asyncio.timeout(30), standing_by.preloading(), asyncio.TaskGroup() as tasks:
        await began.wait()
        tasks.create_task(term())
        await asyncio.sleep(0)
        may_end.set()

    assert order[:2] == ["preloaded", "leads"]


@pytest.mark.parametrize(("error", "kept"), [(RetryError("the database is away"), True), (ValueError("?"), False)])
async def test_a_failed_preload_keeps_no_term_from_beginning(error: Exception, *, kept: bool) -> None:
    """After what nobody expects, the leader may be half written, and is not used."""
    leaders = list[State]()

    def make() -> State:
        leaders.append(State())
        return leaders[-1]

    async def fail(leader: State) -> None:
        leader.preloads += 1
        raise error

    standing_by = Standby(make, fail)
    with capture_logs() as logs:
        await stand_by(standing_by)

    assert any(line["event"] == "the preload failed" for line in logs) is not kept
    async with standing_by.take_over() as leader:
        assert (leader is leaders[0]) is kept
        assert len(leaders) == 1 if kept else len(leaders) > 2
