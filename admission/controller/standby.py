"""The standby: a process that does not lead preloads its state, so that its first cycle is as fast as any other.

A leader without state has to count every gang and inspect every device before its first grant, which takes seconds in a
large cluster. A standby does that periodically in advance; its decisions have no effect, and it writes nothing. Until
its term begins, its state has no epoch under which the ledger would accept a write.
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
"""The pause after a preload, as a multiple of its duration, since a preload takes long in a large cluster."""


class Standby(Generic[T]):
    """One state, created by `make` and kept current by `preload` until a term takes it over."""

    def __init__(self, make: Callable[[], T], preload: Callable[[T], Awaitable[None]]) -> None:
        self._make = make
        self._preload = preload
        self._lock = asyncio.Lock()
        self._preloaded: T | None = None
        self._is_leading = False

    @asynccontextmanager
    async def preloading(self) -> AsyncGenerator[None]:
        """Preload periodically while the block runs, except during a term."""
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
                    await self._preload_once()
            await asyncio.sleep(max(PAUSE, PAUSE_FACTOR * (loop.time() - began)))

    @asynccontextmanager
    async def take_over(self) -> AsyncGenerator[T]:
        """Yield the state for a term. Wait for a preload in progress, as the first cycle would repeat its work."""
        self._is_leading = True
        try:
            async with self._lock:
                state, self._preloaded = self._preloaded or self._make(), None
            yield state
        finally:
            self._is_leading = False

    async def _preload_once(self) -> None:
        state, self._preloaded = self._preloaded or self._make(), None
        try:
            await self._preload(state)
        except RetryError as error:
            log.debug("the preload is tried again", error=str(error))
        except Exception:
            # A failed preload does not stop the process from leading: the next preload or term creates a new state.
            log.exception("the preload failed")
            return
        self._preloaded = state
