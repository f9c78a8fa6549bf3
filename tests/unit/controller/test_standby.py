"""Who stands by keeps one desk warm and hands it over to the term; whatever a rehearsal trips over, a term begins."""

import asyncio

import pytest
from structlog.testing import capture_logs

from admission.controller import standby
from admission.controller.standby import Standby
from admission.errors import RetryError


class Desk:
    rehearsals = 0


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "PAUSE", 0.0)
    monkeypatch.setattr(standby, "REST", 0)


async def turns() -> None:
    """Let others have their turns."""
    for _ in range(50):
        await asyncio.sleep(0)


async def stand_by(understudy: Standby[Desk]) -> None:
    async with understudy.rehearsing():
        await turns()


async def rehearse(desk: Desk) -> None:
    desk.rehearsals += 1


async def test_the_desk_that_was_rehearsed_is_that_of_the_term_and_the_next_term_has_another() -> None:
    made = [Desk(), Desk()]
    left = iter(made)
    understudy = Standby(lambda: next(left), rehearse)
    await stand_by(understudy)
    assert made[0].rehearsals > 1

    async with understudy.on() as first:
        assert first is made[0]
    async with understudy.on() as second:
        assert (second, second.rehearsals) == (made[1], 0)


async def test_nobody_rehearses_during_a_term() -> None:
    desk = Desk()
    understudy = Standby(lambda: desk, rehearse)
    await stand_by(understudy)
    assert desk.rehearsals > 1

    async with understudy.rehearsing(), understudy.on():
        rehearsals = desk.rehearsals
        await turns()
        assert desk.rehearsals == rehearsals


async def test_a_term_waits_for_a_rehearsal_that_is_under_way() -> None:
    began, may_end, order = asyncio.Event(), asyncio.Event(), list[str]()

    async def slow(_: Desk) -> None:
        began.set()
        await may_end.wait()
        order.append("rehearsed")

    understudy = Standby(Desk, slow)

    async def term() -> None:
        async with understudy.on():
            order.append("leads")

    async with asyncio.timeout(5), understudy.rehearsing(), asyncio.TaskGroup() as tasks:
        await began.wait()
        tasks.create_task(term())
        await asyncio.sleep(0)
        may_end.set()

    assert order[:2] == ["rehearsed", "leads"]


@pytest.mark.parametrize(("error", "kept"), [(RetryError("the database is away"), True), (ValueError("?"), False)])
async def test_a_rehearsal_that_fails_keeps_no_term_from_beginning(error: Exception, *, kept: bool) -> None:
    """After what nobody expects, the desk may be half written, and is not used."""
    desks = list[Desk]()

    def make() -> Desk:
        desks.append(Desk())
        return desks[-1]

    async def fail(desk: Desk) -> None:
        desk.rehearsals += 1
        raise error

    understudy = Standby(make, fail)
    with capture_logs() as logs:
        await stand_by(understudy)

    assert any(line["event"] == "the rehearsal failed" for line in logs) is not kept
    async with understudy.on() as desk:
        assert (desk is desks[0]) is kept
        assert len(desks) == 1 if kept else len(desks) > 2
