"""Standing by: a process that does not lead keeps a desk warm, so that its first cycle is like any other.

A desk that knows nothing yet has to count every gang and look at every device before it can grant anything, which takes
seconds in a large cluster. Who stands by does that beforehand, again and again; it decides nothing and writes nothing.
Its desk has no epoch under which the ledger would take anything until its term begins.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import structlog

from admission.errors import RetryError

log = structlog.get_logger()

T = TypeVar("T")

PAUSE = 5.0
"""Seconds between two rehearsals, at least."""

REST = 10
"""So many times as long as a rehearsal has taken it rests: one in a large cluster takes its time, too."""


class Standby(Generic[T]):
    """Keeps one desk (or whatever `make` makes) warm by `rehearse`, as long as nobody takes it."""

    def __init__(self, make: Callable[[], T], rehearse: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._rehearse = rehearse
        self._stage = asyncio.Lock()
        self._warm: T | None = None
        self._is_on = False

    @asynccontextmanager
    async def rehearsing(self) -> AsyncGenerator[None]:
        """Rehearse beside the block; not during a term."""
        task = asyncio.create_task(self._run(), name="rehearse")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            async with self._stage:
                began = loop.time()
                if not self._is_on:
                    await self._once()
            await asyncio.sleep(max(PAUSE, REST * (loop.time() - began)))

    @asynccontextmanager
    async def on(self) -> AsyncGenerator[T]:
        """Yield the desk for a term. A rehearsal that is under way is waited for: the first cycle would do the same."""
        self._is_on = True
        try:
            async with self._stage:
                taken, self._warm = self._warm or self._make(), None
            yield taken
        finally:
            self._is_on = False

    async def _once(self) -> None:
        warm, self._warm = self._warm or self._make(), None
        try:
            await self._rehearse(warm)
        except RetryError as error:
            log.debug("the rehearsal is tried again", error=str(error))
        except Exception:
            # What a rehearsal trips over is no reason not to lead: the next one begins with an empty desk.
            log.exception("the rehearsal failed")
            return
        self._warm = warm
