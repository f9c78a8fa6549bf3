"""Renewal of the secret segment in the webhook's paths, in the Secret that has the authorities.

Controllers write the list of segments and register the webhook with one of them; webhooks read the list, and serve all
of it. Both are sources for `tls.rotation.keep`.
"""

from collections.abc import Awaitable, Callable, Collection
from datetime import datetime

import structlog

from admission.webhook import path_segments
from admission.webhook.path_segments import Segments
from admission.webhook.tls import rotation
from admission.webhook.tls.ca_rotation import Lifetimes
from admission.webhook.tls.rotation import SecretReader, SecretStore

log = structlog.get_logger(__name__)

Named = Callable[[], Awaitable[Collection[str]]]
"""Reads the segments that the webhook configurations name, `PLAIN` for a plain path. Raises MusterError."""


class RegisteredSegment:
    """The segment with which a controller registers the webhook, "" for plain paths; renews the shared list."""

    def __init__(
        self, secret_store: SecretStore, lifetimes: Lifetimes, clock: Callable[[], datetime], *, named: Named
    ) -> None:
        """named: called once, before this process writes the configurations."""
        self.every = min(rotation.CHECK_SECONDS, lifetimes.check_interval.total_seconds())
        self._secret_store = secret_store
        self._lifetimes = lifetimes
        self._clock = clock
        self._read_named = named
        self._named: Collection[str] | None = None
        self._segments: Segments = ()

    async def current(self) -> str:
        """Renew the shared list if that is due, and return the segment to register.

        Raises FixError if the list cannot be read.
        """
        named = self._named if self._named is not None else await self._read_named()
        # Only at the start: plain paths that are found later were registered by this process itself.
        finds_plain = self._named is None and path_segments.PLAIN in named
        found: Segments = ()

        def renewed(entries: rotation.Entries) -> rotation.Entries:
            nonlocal found
            # The segments that this process has seen may be registered, and are missing if the Secret was deleted.
            stored = path_segments.union(path_segments.read(entries), self._segments)
            found = path_segments.rotate(stored, self._lifetimes, now=self._clock())
            if finds_plain:
                found = path_segments.renewed_for_upgrade(found, self._lifetimes, now=self._clock())
            return path_segments.encode(found)

        if await rotation.update(self._secret_store, renewed):
            log.info("the webhook's paths are written", segments=len(found))
        registered = path_segments.registered(found, self._lifetimes, now=self._clock(), named=named)
        self._segments, self._named = found, {registered}
        return registered


class SharedSegments:
    """The segments that a webhook serves: all of the shared list, which it only reads."""

    def __init__(self, secret: SecretReader, lifetimes: Lifetimes) -> None:
        self.every = min(rotation.READ_SECONDS, lifetimes.check_interval.total_seconds())
        self._secret = secret
        self._known: tuple[str, ...] = ()

    async def current(self) -> tuple[str, ...]:
        """Return the segments; none until a controller has written the list. Raises FixError if it cannot be read."""
        stored = await self._secret.read()
        # If the list was deleted, the last known one is registered until a controller has written it again. One that is
        # old counts as well: without a controller it stays registered.
        if stored is not None and (segments := path_segments.read(stored[0])):
            self._known = tuple(segment.text for segment in segments)
        return self._known
