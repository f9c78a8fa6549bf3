"""The loop of admission cycles, which runs as long as this process leads.

A cycle starts after a change, with a short delay so that a burst costs one cycle, or after a time: the slow resync, or
the end of the next back-off or start timeout. Between two cycles there is a pause that follows the processor time which
this process used during the earlier one, so that a cycle that only waited for the API server or the database delays
nobody.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, assert_never

import structlog

from admission.cycle import cycle
from admission.cycle.outcome import Kind, Outcome
from admission.cycle.state.leader import Leader
from admission.cycle.state.result import CycleResult
from admission.errors import RetryError

log = structlog.get_logger()


PAUSE_FACTOR = 2
"""Seconds of pause for each second of processor time, so that cycles take at most a third of one core."""

LONGEST_PAUSE = 1.0
"""Longest pause in seconds."""


LINES_AT_ONCE = 100
"""Lines logged before the loop yields to other tasks."""


class Changes(Protocol):
    """Reports whether the view has changed since the last call."""

    async def wait(self) -> None:
        """Return after the next change; at once if there was one since the last call."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds: between two cycles without a change, to gather a burst, and after a failed cycle."""

    resync: float
    debounce: float
    retry: float = 1.0


async def admit(
    leader: Leader,
    changes: Changes,
    *,
    pace: Callable[[], Pace],
    clock: Callable[[], datetime],
    observe: Callable[[CycleResult, float], None],
    confirm: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Run cycles until cancelled. pace: read before each cycle.

    confirm: returns when the view has all that an earlier leader may have seen. It takes long in a large cluster, so it
    is called after a first cycle, which may already grant, unless an earlier term ended while it was pending.
    Raises DeposedError when a later leader has written to the ledger, and the errors of `confirm`.
    """
    loop = asyncio.get_running_loop()
    before = CycleResult()
    term, process = leader.term, leader.process
    if confirm is not None:
        term.await_confirmation()
    may_begin = not process.is_behind
    while True:
        if confirm is not None and not term.is_confirmed and not may_begin:
            process.fall_behind()
            await confirm()
            process.catch_up()
            term.confirm()
        may_begin = False
        timing = pace()
        started, used_before = loop.time(), time.process_time()
        try:
            with leader.ports.traces.cycle():
                result = await cycle.run(leader, clock())
        except RetryError as error:
            log.warning("the cycle is tried again", error=str(error))
            await asyncio.sleep(timing.retry)
            continue
        await _log_decisions(result)
        _warn(result, before)
        _log_defects(result, before)
        before = result
        used = time.process_time() - used_before
        observe(result, loop.time() - started)
        if not term.is_confirmed:
            continue
        wait = _seconds_until_next(result, clock(), timing.resync)
        # The pause leaves time to the watches and the webhook, and makes a burst cost fewer cycles.
        # There is none when the cycle reached its limit of admissions, so that the remaining gangs need not wait.
        pause = min(PAUSE_FACTOR * used, LONGEST_PAUSE) if wait or not result.granted else 0.0
        rested = loop.time() + pause
        await _change_or_timeout(changes, wait)
        await asyncio.sleep(max(timing.debounce, rested - loop.time()))


async def _log_decisions(result: CycleResult) -> None:
    """Log every decision, one per line: admissions, evictions, and each new reason for which a gang waits."""
    for number, decision in enumerate(result.decisions):
        if number % LINES_AT_ONCE == LINES_AT_ONCE - 1:
            # A new leader logs thousands of lines, and has to renew its lease meanwhile.
            await asyncio.sleep(0)
        log.info(
            str(decision.kind), gang=decision.gang, gang_uid=decision.uid, queue=decision.queue, **_details(decision)
        )


def _details(decision: Outcome) -> dict[str, Any]:
    """Return the fields of a decision's log line. Amounts are text, so that readers of JSON stay exact."""
    match decision.kind:
        case Kind.ADMITTED:
            charges = {meter: str(amount) for meter, amount in decision.charge.items()}
            waited = {} if decision.waited is None else {"waited_seconds": decision.waited.total_seconds()}
            return {
                "pods": decision.pods,
                "charges": charges,
                "user": decision.user,
                "message": decision.message,
                **waited,
            }
        case Kind.EVICTED:
            return {"reason": decision.reason, "message": decision.message, "made_room_for": decision.made_room_for}
        case Kind.HELD | Kind.REFUSED:
            return {"reason": decision.reason, "message": decision.message, "details": dict(decision.details)}
        case _ as never:
            assert_never(never)


def _warn(result: CycleResult, before: CycleResult) -> None:
    """Log once that the clock is behind the books, or that entries wait for the database; not in every cycle."""
    if result.behind and not before.behind:
        seconds = result.behind.total_seconds()
        log.warning("the clock is behind the books, whose time is kept instead; set the clock right", seconds=seconds)
    if result.unposted and not before.unposted:
        log.warning("the ledger's database is away; what happens is kept until it is back", entries=result.unposted)
    if before.unposted and not result.unposted:
        log.info("the ledger's database has what happened meanwhile", entries=before.unposted)


def _log_defects(result: CycleResult, before: CycleResult) -> None:
    """Log new failures of Muster itself, with their tracebacks."""
    logged = {(defect.during, defect.gang, defect.text) for defect in before.defects}
    uids = {gang.key: gang.uid for gang in result.gangs} if result.defects else {}
    for defect in result.defects:
        if (defect.during, defect.gang, defect.text) not in logged:
            logged.add((defect.during, defect.gang, defect.text))
            identity = {"gang": defect.gang, "gang_uid": uids.get(defect.gang, "")}
            log.error("a gang could not be dealt with", **identity, during=str(defect.during), exc_info=defect.error)


def _seconds_until_next(result: CycleResult, now: datetime, resync: float) -> float:
    """Return the seconds until the next cycle if nothing changes."""
    if result.next_try is None:
        return resync
    return min(resync, max(0.0, (result.next_try - now).total_seconds()))


async def _change_or_timeout(changes: Changes, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await changes.wait()
    except TimeoutError:
        return
