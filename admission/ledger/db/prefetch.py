"""The database at work while Python computes: two cores for what would keep one of them waiting for the other."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_HAND_OVER = 0.0001
"""Seconds in which SQLite's thread takes up its work. Not 0: who only looks into the event loop keeps the interpreter
for 5 ms, which that thread needs to begin. For the same reason the work should be one long statement, not many."""


@asynccontextmanager
async def meanwhile(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Have the database work while the caller computes and keeps off the connection; at the end both are done.

    Raises what the caller raises, or else what the work raises.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.sleep(0)  # until it waits for the database
        await asyncio.sleep(_HAND_OVER)
        yield task
    except asyncio.CancelledError:
        task.cancel()
        raise
    finally:
        await asyncio.gather(task, return_exceptions=True)  # whoever comes next needs the connection
    task.result()
