"""The settings in effect: those of the start, with later values of the settings that are marked live."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from admission.settings import Settings
from admission.settings.schema import fields, replaced, values


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadOutcome:
    """The outcome of a reload: the paths of changed settings now in effect, and of those that wait for a restart."""

    changed: tuple[str, ...]
    waiting: tuple[str, ...]


class LiveSettings:
    """The settings in effect, with notification of subscribers about changes."""

    def __init__(self, settings: Settings) -> None:
        self.now = settings
        self._subscribers: list[Callable[[Settings], None]] = []
        self._changed = asyncio.Event()

    def subscribe(self, notify: Callable[[Settings], None]) -> None:
        """Call `notify` with the settings, now and after every change."""
        self._subscribers.append(notify)
        notify(self.now)

    def apply(self, wanted: Settings) -> ReloadOutcome:
        """Put the live settings among new ones into effect."""
        old, new = values(self.now), values(wanted)
        changed_paths = [path for path in fields() if old[path] != new[path]]
        changed = tuple(path for path in changed_paths if fields()[path].live)
        if changed:
            self.now = replaced(self.now, {path: new[path] for path in changed})
            for notify in self._subscribers:
                notify(self.now)
            self._changed.set()
            self._changed = asyncio.Event()
        return ReloadOutcome(changed=changed, waiting=tuple(path for path in changed_paths if path not in changed))

    async def change(self) -> Settings:
        """Wait for the next change, and return the settings in effect."""
        await self._changed.wait()
        return self.now
