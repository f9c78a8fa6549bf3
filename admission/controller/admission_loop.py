"""The loop that runs one admission cycle after another, as long as this process leads.

It is driven by changes, gathered for a moment so that a burst costs one cycle, and by time: a slow resync, and the next
back-off or start timeout that ends.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, assert_never

import structlog

from admission.cycle import cycle
from admission.cycle.outcome import Kind, Outcome
from admission.cycle.state.leader import CycleResult, LeaderState
from admission.errors import RetryError

log = structlog.get_logger()


LONGEST_PAUSE = 1.0
"""Seconds that changes wait at most for a cycle because the last one took long."""


LINES = 100
"""So many lines are logged in a row."""


class Changes(Protocol):
    """Tells that the view has changed since it was last asked."""

    async def wait(self) -> None:
        """Return as soon as something has changed; at once when it has already."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds: between two cycles though nothing changes, to gather a burst, and after a failed cycle."""

    resync: float
    debounce: float
    retry: float = 1.0


async def admit(
    desk: LeaderState,
    changes: Changes,
    *,
    pace: Callable[[], Pace],
    clock: Callable[[], datetime],
    observe: Callable[[CycleResult, float], None],
    confirm: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Run cycles until cancelled. pace: asked before each of them.

    confirm: returns when the view shows all that an earlier leader may have seen. It takes long in a large cluster, so
    it is asked after a first cycle, which may grant already, but where it was asked in an earlier term and has not
    returned. Raises DeposedError when a later leader has written to the ledger, and what `confirm` does.
    """
    loop = asyncio.get_running_loop()
    before = CycleResult()
    desk.caught_up = confirm is None
    may_begin = not desk.lasting.is_behind
    while True:
        if confirm is not None and not desk.caught_up and not may_begin:
            desk.lasting.is_behind = True
            await confirm()
            desk.lasting.is_behind, desk.caught_up = False, True
        may_begin = False
        now = pace()
        started = loop.time()
        try:
            with desk.ports.traces.cycle():
                result = await cycle.run(desk, clock())
        except RetryError as error:
            log.warning("the cycle is tried again", error=str(error))
            await asyncio.sleep(now.retry)
            continue
        await _tell(result)
        _warn(result, before)
        _confess(result, before)
        before = result
        seconds = loop.time() - started
        observe(result, seconds)
        if not desk.caught_up:
            continue
        wait = _until(result, clock(), now.resync)
        await _something(changes, wait)
        # Where a cycle takes long, the time is left to watches and the webhook, and a burst costs fewer of them. But
        # who was left over by a cycle that let in as many as it may does not wait for that.
        rest = min(2 * seconds, LONGEST_PAUSE) if wait or not result.granted else 0.0
        await asyncio.sleep(max(now.debounce, rest))


async def _tell(result: CycleResult) -> None:
    """Log every decision, one a line: who was let in, who was taken back, and who begins to wait for which reason."""
    for number, one in enumerate(result.decisions):
        if number % LINES == LINES - 1:
            # A new leader has thousands of them, and is to renew its lease meanwhile.
            await asyncio.sleep(0)
        log.info(str(one.kind), gang=one.gang, gang_uid=one.uid, queue=one.queue, **_more(one))


def _more(one: Outcome) -> dict[str, Any]:
    """Return what else is logged of a decision. Amounts are text, so that readers of JSON stay exact."""
    match one.kind:
        case Kind.ADMITTED:
            charges = {meter: str(amount) for meter, amount in one.charge.items()}
            waited = {} if one.waited is None else {"waited_seconds": one.waited.total_seconds()}
            return {"pods": one.pods, "charges": charges, "user": one.user, "message": one.message, **waited}
        case Kind.EVICTED:
            return {"reason": one.reason, "message": one.message, "made_room_for": one.made_room_for}
        case Kind.HELD | Kind.REFUSED:
            return {"reason": one.reason, "message": one.message, "details": dict(one.details)}
        case _ as never:
            assert_never(never)


def _warn(result: CycleResult, before: CycleResult) -> None:
    """Log when it begins that the clock is behind the books, or that entries wait for the database; not each cycle."""
    if result.behind and not before.behind:
        seconds = result.behind.total_seconds()
        log.warning("the clock is behind the books, whose time is kept instead; set the clock right", seconds=seconds)
    if result.unposted and not before.unposted:
        log.warning("the ledger's database is away; what happens is kept until it is back", entries=result.unposted)
    if before.unposted and not result.unposted:
        log.info("the ledger's database has what happened meanwhile", entries=before.unposted)


def _confess(result: CycleResult, before: CycleResult) -> None:
    """Log what Muster failed of, with the traceback, when it begins."""
    known = {(one.during, one.gang, one.text) for one in before.defects}
    uids = {gang.key: gang.uid for gang in result.gangs} if result.defects else {}
    for one in result.defects:
        if (one.during, one.gang, one.text) not in known:
            known.add((one.during, one.gang, one.text))
            who = {"gang": one.gang, "gang_uid": uids.get(one.gang, "")}
            log.error("a gang could not be dealt with", **who, during=str(one.during), exc_info=one.error)


def _until(result: CycleResult, now: datetime, resync: float) -> float:
    """Return the seconds until the next cycle though nothing changes."""
    if result.next_try is None:
        return resync
    return min(resync, max(0.0, (result.next_try - now).total_seconds()))


async def _something(changes: Changes, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await changes.wait()
    except TimeoutError:
        return
