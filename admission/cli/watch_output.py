"""`--watch`: shows something again whenever it has changed, until interrupted."""

import time
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from admission.cli import terminal
from admission.errors import RetryError

T = TypeVar("T")

POLL_SECONDS = 2.0
"""Between two looks. The controller writes statuses as often as they change; a person reads slower than that."""

WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Show it again whenever it has changed, until interrupted.")
]

FollowOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Then show the queue whenever it has changed, until interrupted.")
]


def shown(poll: Callable[[], T], show: Callable[[T], None], *, again: bool) -> None:
    """Show what is seen; again: and go on, until the process is interrupted. A terminal is cleared each time."""
    seen = poll()
    show(seen)
    console = Console()
    while again:
        time.sleep(POLL_SECONDS)
        try:
            found = poll()
        except RetryError as error:
            terminal.note(f"{error}; it is tried again")
            continue
        if found != seen:
            console.clear()
            show(found)
            seen = found
