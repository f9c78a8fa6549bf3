"""Reload of settings while Muster runs: on SIGHUP, and when the file changes, such as a mounted ConfigMap."""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

import structlog

from admission.cli import config_command
from admission.errors import FixError
from admission.settings import Settings
from admission.settings.live import LiveSettings
from admission.settings.schema import value

log = structlog.get_logger(__name__)

POLL_SECONDS = 5.0
"""The time between two looks at the file. kubelet takes up to a minute to update a mounted ConfigMap."""

FileState = tuple[int, int, int] | None


class Reloader:
    """The source of new settings: the file, its reader, and whether a reload was requested."""

    def __init__(
        self, config: Path | None, read: Callable[[], Settings], *, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self._file = config or config_command.file()
        self._read = read
        self._seconds = poll_seconds
        self._asked = asyncio.Event()
        self._seen = _file_state(self._file)
        self._waiting: tuple[str, ...] = ()

    def listen(self) -> None:
        """Reload on SIGHUP from now on."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._asked.set)

    async def follow(self, live: LiveSettings) -> None:
        """Apply new settings whenever there are any, until cancelled."""
        while True:
            asked = await self._wait()
            seen = await asyncio.to_thread(_file_state, self._file)
            if not asked and seen == self._seen:
                continue
            self._seen = seen
            try:
                wanted = await asyncio.to_thread(self._read)
            except FixError as error:
                log.error("new settings cannot be used; the old ones hold on", error=str(error))  # noqa: TRY400 - a mistake
                continue
            self._apply(live, wanted, asked=asked)

    async def _wait(self) -> bool:
        """Wait for the next look; return whether a reload was requested."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._asked.wait()
        asked = self._asked.is_set()
        self._asked.clear()
        return asked

    def _apply(self, live: LiveSettings, wanted: Settings, *, asked: bool) -> None:
        outcome = live.apply(wanted)
        if outcome.changed:
            log.info("settings have changed", **{path: value(live.now, path) for path in outcome.changed})
        elif asked:
            log.info("settings were read again; none that is live has changed")
        if outcome.waiting and outcome.waiting != self._waiting:
            log.warning("settings have changed that need a restart", settings=list(outcome.waiting))
        self._waiting = outcome.waiting


def _file_state(file: Path | None) -> FileState:
    """Return values that differ when the file has changed; None if there is no readable file."""
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
