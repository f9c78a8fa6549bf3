"""Standing by: a process that does not lead keeps its state preloaded, so that its first cycle is like any other.

A leader without any state has to count every gang and inspect every device before it can grant anything, which takes
seconds in a large cluster. A standby does that beforehand, again and again; its decisions have no effect and it writes
nothing. Its state has no epoch under which the ledger would accept a write until its term begins.
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
"""Seconds between two preloads, at least."""

PAUSE_FACTOR = 10
"""The pause after a preload, as a multiple of its duration: one in a large cluster takes long itself."""


class Standby(Generic[T]):
    """Keeps one state, as `make` returns it, preloaded by `preload` until a term takes it over."""

    def __init__(self, make: Callable[[], T], preload: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._preload = preload
        self._lock = asyncio.Lock()
        self._preloaded: T | None = None
        self._is_leading = False

    @asynccontextmanager
    async def preloading(self) -> AsyncGenerator[None]:
        """Preload beside the block; not during a term."""
        task = asyncio.create_task(self._run(), name="preload")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            async with self._lock:
                began = loop.time()
                if not self._is_leading:
                    await self._once()
            await asyncio.sleep(max(PAUSE, PAUSE_FACTOR * (loop.time() - began)))

    @asynccontextmanager
    async def take_over(self) -> AsyncGenerator[T]:
        """Yield the state for a term. A preload in progress is waited for: the first cycle would do the same work."""
        self._is_leading = True
        try:
            async with self._lock:
                state, self._preloaded = self._preloaded or self._make(), None
            yield state
        finally:
            self._is_leading = False

    async def _once(self) -> None:
        state, self._preloaded = self._preloaded or self._make(), None
        try:
            await self._preload(state)
        except RetryError as error:
            log.debug("the rehearsal is tried again", error=str(error))
        except Exception:
            # A failed preload is no reason not to lead: the next one begins with an empty state.
            log.exception("the rehearsal failed")
            return
        self._preloaded = state
