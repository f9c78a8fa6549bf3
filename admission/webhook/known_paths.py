"""The paths that currently lead to an endpoint.

These are `/SEGMENT/mutate` for the known segments, and the plain `/mutate` only while it is registered. The previous
version of Muster registers plain paths, so they are served while its webhook configurations exist.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Iterable

from admission.errors import MusterError

IsPlainRegistered = Callable[[], Awaitable[bool]]
"""Reads whether a webhook configuration names a plain path. Raises MusterError if it cannot be read."""

NAMED_AGAIN_SECONDS = 10.0
"""Seconds until the configurations are read again after one named a plain path."""

UNNAMED_AGAIN_SECONDS = 1.0
"""Seconds until the configurations are read again after none named a plain path, whatever is called meanwhile."""

GRACE_SECONDS = 60.0
"""Seconds for which plain paths are served after a configuration last named them, since API servers take a while to
use a new configuration."""


class KnownPaths:
    """The known segments, and whether plain paths are served.

    Only `replace` changes the segments. is_plain_registered: called when a plain path is requested, at most once a
    second; None: plain paths are always served, as they are if others write the configurations. clock: monotonic
    seconds.
    """

    def __init__(
        self,
        segments: Iterable[str] = (),
        *,
        is_plain_registered: IsPlainRegistered | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._segments: tuple[bytes, ...] = ()
        self._is_plain_registered = is_plain_registered
        self._clock = clock or asyncio.get_running_loop().time
        self._reading = asyncio.Lock()
        self._failure: MusterError | None = None
        """Why the configurations could not be read."""
        self._read_again_at = self._plain_until = self._clock()
        self.replace(segments)

    def replace(self, segments: Iterable[str]) -> None:
        """Replace the known segments."""
        self._segments = tuple(segment.encode() for segment in segments)

    def endpoint(self, path: str) -> tuple[str, bool]:
        """Return the name of the endpoint at a path, and whether the path is plain; "" if there is none.

        The comparison takes equally long however much of a known segment the path has.
        """
        match path.split("/", 3):
            case ["", name]:
                return name, True
            case ["", segment, name]:
                given = segment.encode(errors="surrogatepass")
                known = [hmac.compare_digest(given, one) for one in self._segments]
                return (name, False) if any(known) else ("", False)
            case _:
                return "", False

    async def knows_plain(self) -> bool:
        """Whether plain paths are served now. Raises MusterError if the configurations cannot be read."""
        if self._is_plain_registered is None:
            return True
        if self._clock() >= self._read_again_at:
            async with self._reading:
                if self._clock() >= self._read_again_at:
                    await self._refresh(self._is_plain_registered)
        if self._failure is not None:
            raise self._failure
        return self._clock() < self._plain_until

    async def _refresh(self, is_plain_registered: IsPlainRegistered) -> None:
        is_plain, self._failure = False, None
        try:
            is_plain = await is_plain_registered()
        except MusterError as error:
            self._failure = error
        if is_plain:
            self._plain_until = self._clock() + GRACE_SECONDS
        self._read_again_at = self._clock() + (NAMED_AGAIN_SECONDS if is_plain else UNNAMED_AGAIN_SECONDS)
