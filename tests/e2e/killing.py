"""`python -m tests.e2e.killing WHAT:N serve …`: `muster`, but it kills itself (-9) at its n-th write of a kind.

A real process that really dies in the middle of placing a gang, between the commit of its reservation and its start.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from admission import cli
from admission.kube.writers.claims import ClaimWriter
from admission.kube.writers.pods import PodWriter

WRITES = {"gate": (PodWriter, "open_gate"), "claim": (ClaimWriter, "allocate"), "protected": (ClaimWriter, "_write")}
"""About to open a gate, to write a claim at all, or to allocate one that has its finalizer already."""


def main() -> None:
    what, _, number = sys.argv.pop(1).partition(":")
    writer, name = WRITES[what]
    setattr(writer, name, deadly(getattr(writer, name), int(number)))
    cli.main()


def deadly(real: Callable[..., Awaitable[Any]], fatal: int) -> Callable[..., Awaitable[Any]]:
    """Return the same write, whose n-th call kills the process instead."""
    calls = count(1)

    async def write(*arguments: Any, **named: Any) -> Any:
        if next(calls) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return await real(*arguments, **named)

    return write


if __name__ == "__main__":
    main()
