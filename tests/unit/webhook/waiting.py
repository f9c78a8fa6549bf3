"""Waiting for what announces itself nowhere."""

import asyncio
from collections.abc import Callable


async def until(is_so: Callable[[], bool]) -> None:
    """Return when it is so; raise TimeoutError where it is not within half a minute."""
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - what is waited for is in the kernel, or in a property
            await asyncio.sleep(0.005)
