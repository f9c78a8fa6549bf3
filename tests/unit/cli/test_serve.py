"""How `muster serve` sets up its process."""

import asyncio
import sys
from collections.abc import Iterator

import pytest

from admission.cli.serve import command


@pytest.fixture(autouse=True)
def _interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def test_answers_wait_for_a_deciding_cycle_but_shortly() -> None:
    seen: list[float] = []

    async def serve(_stop: asyncio.Event) -> None:
        seen.append(sys.getswitchinterval())
        await asyncio.sleep(0)

    command.run(serve)

    assert seen == [pytest.approx(command.SWITCH_SECONDS)]
