"""The background thread for long computations, so that the event loop renews the lease meanwhile."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class BackgroundExecutor:
    """Runs one call at a time. One per process.

    A thread cannot be cancelled: after a leader has lost its lease, its call goes on. Two threads would halve each
    other's speed, and that of the event loop; so the next leader waits for the call.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="background")

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a call returns, or raise what it raises. The call sees its caller's context variables."""
        inside = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(inside.run, call, *args, **kwargs))
