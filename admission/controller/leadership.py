"""Leadership: only the holder of the lease makes decisions, and the ledger refuses writes of earlier holders."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import structlog

from admission.errors import ClusterUnavailableError, DeposedError, ForbiddenError

log = structlog.get_logger()

PAUSE = 1.0
"""Seconds between the end of a term and the next candidacy."""


class Term(Protocol):
    """One term as leader. epoch: grows with every term of any process."""

    @property
    def epoch(self) -> int: ...

    @property
    def lost(self) -> asyncio.Event: ...


class Election(Protocol):
    """The election of leaders."""

    def lead(self) -> AbstractAsyncContextManager[Term]:
        """Wait until this process leads; release the lease on leaving."""
        ...


async def lead(
    election: Election, work: Callable[[int], Awaitable[None]], *, on_change: Callable[[int | None], None]
) -> None:
    """Run `work` with the epoch whenever this process leads, until cancelled; cancel it when the lease is lost.

    on_change: called with the epoch when a term begins, and with None when it has ended.
    """
    while True:
        async with election.lead() as term:
            log.info("this process leads", epoch=term.epoch)
            on_change(term.epoch)
            try:
                await _work(term, work)
            except DeposedError as error:
                log.warning("another leader has taken over", epoch=term.epoch, error=str(error))
            except ForbiddenError as error:
                # A role is missing, or an API server that has just started has yet to read its roles.
                log.warning(
                    "the controller is refused what it needs, and begins anew", epoch=term.epoch, error=str(error)
                )
            except Exception:
                # A defect here must not stop the webhook of this process, which would close the queued namespaces.
                log.exception("the controller failed and begins anew", epoch=term.epoch)
            finally:
                on_change(None)
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
    if isinstance(failure, BaseException) and not isinstance(failure, ClusterUnavailableError | asyncio.CancelledError):
        raise failure


async def _run(work: Callable[[int], Awaitable[None]], epoch: int) -> None:
    await work(epoch)


async def _run_until(lost: asyncio.Event) -> None:
    await lost.wait()


def _leaf(outcome: object) -> object:
    """Return the only exception of nested exception groups: its class says what to do next."""
    while isinstance(outcome, BaseExceptionGroup) and len(outcome.exceptions) == 1:
        outcome = outcome.exceptions[0]
    return outcome
