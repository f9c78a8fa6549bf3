"""Overlap of database work with Python's computation, on two cores."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_HAND_OVER = 0.0001
"""Seconds for SQLite's thread to start its work. Not 0: a `sleep(0)` does not release the interpreter, and that thread
would get it only after 5 ms (the switch interval). So the work should also be one long statement, not many."""


@asynccontextmanager
async def meanwhile(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run database work while the caller computes without using the connection; at the end both have finished.

    Raises what the caller raises, or else what the work raises.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.sleep(0)  # the task runs until it waits for the database
        await asyncio.sleep(_HAND_OVER)
        yield task
    except asyncio.CancelledError:
        task.cancel()
        raise
    finally:
        await asyncio.gather(task, return_exceptions=True)  # the next statement needs the connection
    task.result()
