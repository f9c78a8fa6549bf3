"""Which paths lead to an endpoint at this moment.

That is `/SEGMENT/mutate` for the segments that are known, and the plain `/mutate` only while it is registered.
The Muster of the version before registers plain paths, so they are known for as long as its configurations stand.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Iterable

from admission.errors import MusterError

IsPlainRegistered = Callable[[], Awaitable[bool]]
"""Looks whether a webhook configuration names a plain path. Raises MusterError if nobody can tell."""

NAMED_AGAIN_SECONDS = 10.0
"""How long a configuration that names plain paths is believed to stand."""

UNNAMED_AGAIN_SECONDS = 1.0
"""How long none is looked for again, whoever calls."""

GRACE_SECONDS = 60.0
"""How long plain paths are known after the last configuration that named them: API servers hear of a new one later."""


class KnownPaths:
    """The segments that are known, and whether plain paths are.

    `replace` alone changes the segments. is_plain_registered: asked when somebody calls a plain path, at most once a
    second; None: plain paths are always known, as where others write the configurations. clock: seconds that only grow.
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
        self._looking = asyncio.Lock()
        self._failure: MusterError | None = None
        """Why the last look told nothing."""
        self._look_again = self._plain_until = self._clock()
        self.replace(segments)

    def replace(self, segments: Iterable[str]) -> None:
        """Know these segments, and no others."""
        self._segments = tuple(segment.encode() for segment in segments)

    def endpoint(self, path: str) -> tuple[str, bool]:
        """Return the name of the endpoint at a path, and whether the path is plain; "" where nothing is known.

        The comparison takes as long whatever the path has in common with a known one.
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
        """Whether plain paths are known now. Raises MusterError if nobody can tell."""
        if self._is_plain_registered is None:
            return True
        if self._clock() >= self._look_again:
            async with self._looking:
                if self._clock() >= self._look_again:
                    await self._look(self._is_plain_registered)
        if self._failure is not None:
            raise self._failure
        return self._clock() < self._plain_until

    async def _look(self, is_plain_registered: IsPlainRegistered) -> None:
        is_plain, self._failure = False, None
        try:
            is_plain = await is_plain_registered()
        except MusterError as error:
            self._failure = error
        if is_plain:
            self._plain_until = self._clock() + GRACE_SECONDS
        self._look_again = self._clock() + (NAMED_AGAIN_SECONDS if is_plain else UNNAMED_AGAIN_SECONDS)
