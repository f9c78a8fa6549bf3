"""Leadership: only the holder of the lease decides, and the ledger refuses whoever held it before."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import structlog

from admission.errors import ClusterAwayError, DeposedError, ForbiddenError

log = structlog.get_logger()

PAUSE = 1.0
"""Seconds after a term before we stand for election again."""


class Term(Protocol):
    """One time of leading. epoch grows with every term of any process."""

    @property
    def epoch(self) -> int: ...

    @property
    def lost(self) -> asyncio.Event: ...


class Election(Protocol):
    """Where leaders are chosen."""

    def lead(self) -> AbstractAsyncContextManager[Term]:
        """Wait until this process leads; the lease is given back on leaving."""
        ...


async def lead(
    election: Election, work: Callable[[int], Awaitable[None]], *, leads: Callable[[int | None], None]
) -> None:
    """Work whenever this process leads, until cancelled. work gets the epoch and ends when the lease is lost.

    leads: is told of every term by its epoch when it begins, and by None when it has ended.
    """
    while True:
        async with election.lead() as term:
            log.info("this process leads", epoch=term.epoch)
            leads(term.epoch)
            try:
                await _work(term, work)
            except DeposedError as error:
                log.warning("another leader has taken over", epoch=term.epoch, error=str(error))
            except ForbiddenError as error:
                # For want of a role, or since the API server has just started and has yet to read them.
                log.warning(
                    "the controller is refused what it needs, and begins anew", epoch=term.epoch, error=str(error)
                )
            except Exception:
                # A defect here must not take the webhook down with it, and queued namespaces with that.
                log.exception("the controller failed and begins anew", epoch=term.epoch)
            finally:
                leads(None)
        await asyncio.sleep(PAUSE)


async def _work(term: Term, work: Callable[[int], Awaitable[None]]) -> None:
    """Run the work and the watch over the lease; whichever ends first ends the other."""
    working = asyncio.create_task(_run(work, term.epoch), name="lead")
    losing = asyncio.create_task(_run_until(term.lost), name="watch the lease")
    try:
        await asyncio.wait({working, losing}, return_when=asyncio.FIRST_COMPLETED)
        if losing.done() and not working.done():
            log.warning("the lease is lost", epoch=term.epoch)
    finally:
        losing.cancel()
        working.cancel()
        outcomes = await asyncio.gather(working, losing, return_exceptions=True)
    failure = _leaf(outcomes[0])
    if isinstance(failure, BaseException) and not isinstance(failure, ClusterAwayError | asyncio.CancelledError):
        raise failure


async def _run(work: Callable[[int], Awaitable[None]], epoch: int) -> None:
    await work(epoch)


async def _run_until(lost: asyncio.Event) -> None:
    await lost.wait()


def _leaf(outcome: object) -> object:
    """Return what a TaskGroup has failed of, where it is one thing: its name says what to do next."""
    while isinstance(outcome, BaseExceptionGroup) and len(outcome.exceptions) == 1:
        outcome = outcome.exceptions[0]
    return outcome
