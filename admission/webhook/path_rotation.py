"""Renewal of the secret segment in the webhook's paths, from the Secret that all processes share.

`app` gives the server its first segments from `current`, and runs `keep` beside it.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime

import structlog

from admission.errors import MusterError
from admission.webhook import path_segments
from admission.webhook.path_segments import Segments
from admission.webhook.tls import rotation
from admission.webhook.tls.ca_rotation import Lifetimes
from admission.webhook.tls.rotation import SecretStore

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPaths:
    """known: the segments by which the webhook is reached; registered: the one to register, "" for plain paths."""

    known: tuple[str, ...]
    registered: str


class PathSegments:
    """The segments that all processes share. named: what stood in the webhook configurations at the start."""

    def __init__(
        self,
        secret_store: SecretStore,
        lifetimes: Lifetimes,
        clock: Callable[[], datetime],
        *,
        named: Collection[str],
    ) -> None:
        self.every = min(rotation.CHECK_SECONDS, lifetimes.check_interval.total_seconds())
        """Seconds between two calls of `current`."""
        self._secret_store = secret_store
        self._lifetimes = lifetimes
        self._clock = clock
        self._named = named
        self._segments: Segments = ()
        self._finds_plain = path_segments.PLAIN in named
        """Whether plain paths were found, and nothing was done about it yet."""

    async def current(self) -> ServedPaths:
        """Renew the shared list if that is due. Raises FixError if it cannot be read."""
        found: Segments = ()

        def renewed(entries: rotation.Entries) -> rotation.Entries:
            nonlocal found
            # What this process knows may have been registered, and is missing if the Secret was deleted.
            stored = path_segments.union(path_segments.read(entries), self._segments)
            found = path_segments.rotate(stored, self._lifetimes, now=self._clock())
            if self._finds_plain:
                found = path_segments.renewed_for_upgrade(found, self._lifetimes, now=self._clock())
            return path_segments.encode(found)

        if await rotation.update(self._secret_store, renewed):
            log.info("the webhook's paths are written", segments=len(found))
        self._segments, self._finds_plain = found, False
        registered = path_segments.registered(found, self._lifetimes, now=self._clock(), named=self._named)
        self._named = {registered}
        return ServedPaths(known=tuple(segment.text for segment in found), registered=registered)


async def keep(source: PathSegments, serve: Callable[[ServedPaths], None]) -> None:
    """Serve every change of the segments, until cancelled. Failures are retried."""
    while True:
        await asyncio.sleep(source.every)
        try:
            serve(await source.current())
        except MusterError as error:
            log.warning("the webhook's paths are not renewed", error=str(error))
