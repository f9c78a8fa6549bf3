"""Tells a waiting person what `go build -v` has done so far: seconds, downloads and packages compiled."""

import sys
import time
from collections import deque
from collections.abc import Iterable

SECONDS_BETWEEN_LINES = 20.0
SECONDS_BETWEEN_UPDATES = 0.5


class Progress:
    """Reads the lines of one build; on a terminal one line is rewritten, elsewhere a line now and then is printed."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._started = time.monotonic()
        self._shown = 0.0
        self._terminal = sys.stderr.isatty()
        self._packages = 0
        self._downloads = 0
        self._tail: deque[str] = deque(maxlen=30)

    def follow(self, lines: Iterable[str]) -> None:
        """Count until the build closes its output."""
        self._show("started, takes some minutes the first time")
        for line in lines:
            self._count(line.rstrip())
            self._show_now_and_then()

    def done(self) -> None:
        self._show("done")
        if self._terminal:
            print(file=sys.stderr)

    def last_words(self) -> list[str]:
        """What the build wrote last, for an error message."""
        return list(self._tail)

    def _count(self, line: str) -> None:
        self._tail.append(line)
        if line.startswith("go: downloading "):
            self._downloads += 1
        elif " " not in line:
            self._packages += 1

    def _show_now_and_then(self) -> None:
        pause = SECONDS_BETWEEN_UPDATES if self._terminal else SECONDS_BETWEEN_LINES
        if time.monotonic() - self._shown >= pause:
            self._show(f"{self._packages} packages compiled")

    def _show(self, state: str) -> None:
        self._shown = time.monotonic()
        elapsed = self._shown - self._started
        downloads = f", {self._downloads} modules downloaded" if self._downloads else ""
        text = f"{self._title}: {state}{downloads}, {elapsed:.0f} s"
        start, end = ("\r\033[K", "") if self._terminal else ("", "\n")
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)
