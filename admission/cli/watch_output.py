"""`--watch`: prints the output again whenever it has changed, until interrupted."""

import time
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from admission.cli import terminal
from admission.errors import RetryError

T = TypeVar("T")

POLL_SECONDS = 2.0
"""The time between two polls. The controller writes statuses more often, but people read slower."""

WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Show it again whenever it has changed, until interrupted.")
]

FollowOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Then show the queue whenever it has changed, until interrupted.")
]


def poll_and_print(poll: Callable[[], T], show: Callable[[T], None], *, again: bool) -> T:
    """Print the result of a poll and return it; if `again`, poll until interrupted, on a cleared terminal."""
    previous = poll()
    show(previous)
    console = Console()
    while again:
        time.sleep(POLL_SECONDS)
        try:
            current = poll()
        except RetryError as error:
            terminal.note(f"{error}; it is tried again")
            continue
        if current != previous:
            console.clear()
            show(current)
            previous = current
    return previous
