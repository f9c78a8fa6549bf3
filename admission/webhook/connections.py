"""The open connections of one listener: how many there may be, and how long each may take over what it owes.

aiohttp bounds how long a connection may be idle between two requests, and nothing else: neither how many there are, nor
how long a request's head or the reading of an answer takes.
"""

import asyncio
import errno
import fcntl
import socket
import struct
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus

from aiohttp import web

from admission.webhook.refusals import Refusal, Refuse

DISMISSED_SECONDS = 0.01
"""Time for an answer to leave this process. Meanwhile TLS takes in up to 256 KiB, whether anybody reads or not."""

READ_BUFFER = 16_384
"""Bytes of a body that wait for their reader, twice as many at most, and one read more (aiohttp's `read_bufsize`)."""

HTTP_LIMITS = {"max_line_size": 2_048, "max_field_size": 4_096, "max_headers": 32}
"""Bytes of the request line and of a header, and the number of headers: 130 KiB that an unfinished head may hold. The
API server sends about eight, the longest of them its token, if it was given one."""

IDLE_SECONDS = 100.0
"""How long a connection is kept between two requests. The API server's client (Go) keeps it for 90 s, and is to be the
one that closes it."""

LINGER_SECONDS = 1.0
"""How long the rest of a refused body is read and dropped, so that the API server sees why. A connection that is closed
with unread bytes is reset, and the answer may be lost, as it may for those who are dismissed."""


DROPS = 12
"""Twelve times 5 s, since a connection that is used all the time has nearly always something on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds. The API server waits 5 s for a review, so nothing that takes longer is of use to it.

    head: for the TLS handshake and the first request's head; later, for a head from its first byte on. answer: how long
    a client may read nothing of an answer; reading it drop by drop may take `DROPS` times as long.
    """

    head: float = 5.0
    answer: float = 5.0

    @property
    def precision(self) -> float:
        """Return the time between two looks at the connections."""
        return min(0.5, self.head / 4, self.answer / 4)


class Connection(web.RequestHandler):
    """One connection, from when it is accepted. Its `Connections` alone changes its state."""

    __slots__ = (
        "_connections",
        "_socket",
        "_wire",
        "handshake",
        "head_since",
        "is_aborted",
        "is_begun",
        "is_busy",
        "unread_since",
    )

    def __init__(
        self,
        accepted: socket.socket,
        connections: "Connections",
        server: web.Server,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            access_log=None,  # type: ignore[arg-type] # as `web.AppRunner` passes it on
            keepalive_timeout=IDLE_SECONDS,
            lingering_time=LINGER_SECONDS,
            read_bufsize=READ_BUFFER,
            auto_decompress=False,
            **HTTP_LIMITS,  # type: ignore[arg-type]
        )
        # The transport's own buffer shows only what is not encrypted yet, and the rest is in that of another transport.
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(connections.deadlines.answer * 1e3))
        self._socket = accepted
        self._connections = connections
        self._wire: asyncio.Transport | None = None
        """The transport until the connection is lost; aiohttp forgets its own earlier."""
        self.handshake: asyncio.Task[None] | None = None
        """None before it and after it."""
        self.is_begun = False
        """Whether its handshake has begun; from then on a transport owns the socket."""
        self.head_since: float | None = connections.now
        """Since when the client owes a request's head; None: it owes none."""
        self.unread_since: float | None = None
        """Since when the client has something left to read; None: it has read all."""
        self.is_busy = False
        """Whether a request is being answered."""
        self.is_aborted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.is_aborted:
            transport.abort()  # type: ignore[attr-defined] # a transport of a stream
            return
        self._wire = transport  # type: ignore[assignment]
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        # The system's own; that of a goodbye in TLS, which the client need not answer, has no number.
        if isinstance(exc, TimeoutError) and exc.errno == errno.ETIMEDOUT:
            self._connections.refuse(Refusal.ANSWER)
        self._wire = None
        self._connections.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.is_busy and self.head_since is None:
            self.head_since = self._connections.now
        web.RequestHandler.data_received(self, data)  # twice as fast as by `super`

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is not HTTP without a line in the log, which anybody could fill."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return super().handle_error(request, status, exc, message)
        self._connections.refuse(Refusal.MALFORMED)
        answer = web.Response(status=status, text="this is not HTTP as the API server speaks it\n")
        answer.force_close()
        return answer

    def begin(self) -> None:
        """Note that a request's head is there."""
        self.is_busy = True
        self.head_since = None

    def prove(self) -> None:
        """Note that the request knows a path of the API server's."""
        self._connections.prove(self)

    def dismiss(self) -> None:
        """Read nothing more, and close as soon as the answer is on its way, whether its client says goodbye or not."""
        if self._wire is not None:
            self._wire.pause_reading()
            self._loop.call_later(DISMISSED_SECONDS, self.abort)

    def end(self) -> None:
        """Note that the request is answered, as far as this process is concerned."""
        self.is_busy = False

    def abort(self) -> None:
        """Close at once, in the middle of whatever it is."""
        self.is_aborted = True
        if self._wire is not None:
            self._wire.abort()
        elif self.handshake is not None:
            self.handshake.cancel()
        elif not self.is_begun:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    @property
    def is_open(self) -> bool:
        """Whether the TLS handshake is over, and the connection not yet lost."""
        return self._wire is not None

    @property
    def is_unread(self) -> bool:
        """Whether the client has not received everything yet (tcp(7), SIOCOUTQ)."""
        if self._socket.fileno() < 0:
            return False
        (unsent,) = struct.unpack("i", fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(4)))
        return bool(unsent)


class Connections:
    """The open connections, each either a stranger's or proven, and no more than `most` of them.

    Beyond that, a new one takes the place of the oldest stranger; if there is none, that of the proven one that is idle
    for longest. So strangers close each other's connections and none of the API server's, which is proven with its
    first request; and a new one lives the longer, the more there may be.
    """

    def __init__(self, most: int, deadlines: Deadlines, refuse: Refuse) -> None:
        self._most = most
        self.deadlines = deadlines
        self.refuse = refuse
        self._strangers: dict[Connection, None] = {}
        """The oldest first."""
        self._proven: dict[Connection, None] = {}
        """The one that is unused for longest first."""
        self.now = 0.0
        """Seconds, as of the last look. Time in which this process did not run does not count: nobody could have been
        heard in it."""

    def __len__(self) -> int:
        """Return the number of connections."""
        return len(self._strangers) + len(self._proven)

    def admit(self, connection: Connection) -> bool:
        """Add a connection, if need be in the place of another one. Returns False if all others are at work."""
        if len(self) >= self._most:
            self.refuse(Refusal.CONNECTIONS)
            least = next(self._by_worth(), None)
            if least is None:
                return False
            self._close(least)
        self._strangers[connection] = None
        return True

    def prove(self, connection: Connection) -> None:
        """Note that a connection is the API server's, and used now. A no-op for one that was closed meanwhile."""
        if connection in self._proven or connection in self._strangers:
            self.forget(connection)
            self._proven[connection] = None

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is closed."""
        self._strangers.pop(connection, None)
        self._proven.pop(connection, None)

    def look(self, elapsed: float) -> None:
        """Close the connections that are past a deadline. elapsed: seconds since the last look."""
        self.now += min(elapsed, 2 * self.deadlines.precision)
        for connection in (*self._strangers, *self._proven):
            refusal = self._overdue(connection)
            if refusal is not None:
                self.refuse(refusal)
                self._close(connection)

    def close_all(self) -> None:
        """Close all connections at once."""
        for connection in (*self._strangers, *self._proven):
            self._close(connection)

    def _overdue(self, connection: Connection) -> Refusal | None:
        if connection.head_since is not None and self.now - connection.head_since > self.deadlines.head:
            return Refusal.HEAD
        if not connection.is_unread:
            connection.unread_since = None
        elif connection.unread_since is None:
            connection.unread_since = self.now
        elif self.now - connection.unread_since > DROPS * self.deadlines.answer:
            return Refusal.ANSWER
        return None

    def _close(self, connection: Connection) -> None:
        self.forget(connection)
        connection.abort()

    def _by_worth(self) -> Iterator[Connection]:
        """Yield the connections that may be closed for a new one, the one that is missed least first."""
        yield from self._strangers
        yield from (connection for connection in self._proven if not connection.is_busy)
