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
        self._reload_requested = asyncio.Event()
        self._file_state_seen = _file_state(self._file)
        self._waiting: tuple[str, ...] = ()

    def listen(self) -> None:
        """Reload on SIGHUP from now on."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload_requested.set)

    async def follow(self, live: LiveSettings) -> None:
        """Apply new settings whenever there are any, until cancelled."""
        while True:
            requested = await self._wait()
            state = await asyncio.to_thread(_file_state, self._file)
            if not requested and state == self._file_state_seen:
                continue
            self._file_state_seen = state
            try:
                settings = await asyncio.to_thread(self._read)
            except FixError as error:
                log.error("new settings cannot be used; the old ones hold on", error=str(error))  # noqa: TRY400 - a mistake
                continue
            self._apply(live, settings, requested=requested)

    async def _wait(self) -> bool:
        """Wait for the next look; return whether a reload was requested."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._reload_requested.wait()
        requested = self._reload_requested.is_set()
        self._reload_requested.clear()
        return requested

    def _apply(self, live: LiveSettings, settings: Settings, *, requested: bool) -> None:
        outcome = live.apply(settings)
        if outcome.changed:
            log.info("settings have changed", **{path: value(live.now, path) for path in outcome.changed})
        elif requested:
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
