"""The settings that hold now: those of the start, and of what is marked live, what was said since."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from admission.settings import Settings
from admission.settings.schema import fields, replaced, values


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadOutcome:
    """What became of new settings: paths of those that hold now, and of those that wait for a restart."""

    changed: tuple[str, ...]
    waiting: tuple[str, ...]


class Held:
    """Holds settings, and tells those who ask that they have changed."""

    def __init__(self, settings: Settings) -> None:
        self.now = settings
        self._heard: list[Callable[[Settings], None]] = []
        self._changed = asyncio.Event()

    def hear(self, notify: Callable[[Settings], None]) -> None:
        """Have settings told, at once and whenever they change."""
        self._heard.append(notify)
        notify(self.now)

    def apply(self, wanted: Settings) -> ReloadOutcome:
        """Let what is live of new settings hold from now on."""
        old, new = values(self.now), values(wanted)
        differing = [path for path in fields() if old[path] != new[path]]
        changed = tuple(path for path in differing if fields()[path].live)
        if changed:
            self.now = replaced(self.now, {path: new[path] for path in changed})
            for notify in self._heard:
                notify(self.now)
            self._changed.set()
            self._changed = asyncio.Event()
        return ReloadOutcome(changed=changed, waiting=tuple(path for path in differing if path not in changed))

    async def change(self) -> Settings:
        """Wait for the next change, and return what holds then."""
        await self._changed.wait()
        return self.now
