"""`--watch`: prints the output again whenever it has changed, until interrupted."""

import sys
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
    console = Console()

    def print_now(found: T) -> None:
        show(found)
        # In a pipe the output would wait until it fills a block, which a list that seldom changes never does.
        sys.stdout.flush()

    previous = poll()
    print_now(previous)
    while again:
        time.sleep(POLL_SECONDS)
        try:
            current = poll()
        except RetryError as error:
            terminal.note(f"{error}; it is tried again")
            continue
        if current != previous:
            console.clear()
            print_now(current)
            previous = current
    return previous
