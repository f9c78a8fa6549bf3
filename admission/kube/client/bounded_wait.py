"""A wait for the cluster that ends: it asks again and again until an answer is final or the time is over."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.5
"""The time between two questions."""


async def poll(ask: Callable[[], Awaitable[T]], is_final: Callable[[T], bool], *, seconds: float) -> T:
    """Ask until an answer is final, and return it; when `seconds` have passed, ask once more and return that answer."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        answer = await ask()
        left = deadline - loop.time()
        if is_final(answer) or left <= 0:
            return answer
        await asyncio.sleep(min(POLL_SECONDS, left))
