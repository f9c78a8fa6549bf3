"""What takes long runs in a thread beside the event loop, so that the lease is renewed meanwhile."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class BackgroundExecutor:
    """Runs one thing at a time. One for each process.

    A thread cannot be cancelled: of a leader that has lost its lease it runs on. Two of them would halve each other's
    speed, and the event loop's; so whoever leads next waits for it.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="aside")

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a call returns, or raise what it raises. It sees the context variables of whoever waits."""
        inside = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(inside.run, call, *args, **kwargs))
