"""How long work tells how far it is: a bar on the standard error, where a person looks at it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

STEPS = 200
"""How often the bar is moved at most; each time costs more than reading a row."""


@contextmanager
def shown(title: str) -> Iterator[Callable[[int, int], None]]:
    """Yield what is told how much of how much is done. Nothing is written where the standard error is no terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        last = 0

        def watch(done: int, total: int) -> None:
            nonlocal last
            if done < last or (done - last) * STEPS >= total:
                last = done
                bar.update(task, completed=done, total=total)

        yield watch
