"""Waits for what an asynchronous system will show, and watches what it must not do."""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 90.0
"""Seconds. A machine that is busy with something else is late, but wrong is only what never comes."""

SECONDS_BETWEEN_LOOKS = 0.1

Seen = TypeVar("Seen")


def eventually(look: Callable[[], Seen | None], *, what: str | Callable[[], str], within: float = PATIENCE) -> Seen:
    """Look until something true is seen, and return it; fail with the last sight once `within` seconds are over.

    what: what is waited for, or a function that says at the end how things stand.
    """
    deadline = time.monotonic() + within
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > deadline:
            told = what if isinstance(what, str) else what()
            msg = f"{told}: not seen within {within:g} s; last seen: {seen!r}"
            raise AssertionError(msg)
        time.sleep(SECONDS_BETWEEN_LOOKS)


def holds_for(seconds: float, look: Callable[[], object], *, what: str) -> None:
    """Look again and again; fail at the first sight that is not true. For "nothing happens": no event tells it."""
    started = time.monotonic()
    while (elapsed := time.monotonic() - started) < seconds:
        seen = look()
        assert seen, f"{what}: held for {elapsed:.1f} s of {seconds:g} only; seen: {seen!r}"
        time.sleep(SECONDS_BETWEEN_LOOKS)
