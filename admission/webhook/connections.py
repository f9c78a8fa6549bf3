"""The open connections of one listener: bounds on their number, and deadlines for what the client of each has to do.

aiohttp bounds only how long a connection may be idle between two requests, neither the number of connections nor the
time for a request's head or for reading an answer.
"""

import asyncio
import errno
import fcntl
import socket
import struct
import termios
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain

from aiohttp import web

from admission.webhook.refusals import Refusal, Refuse

DISMISSED_SECONDS = 0.01
"""Time for an answer to leave this process. TLS buffers up to 256 KiB of it even if the client reads nothing."""

READ_BUFFER = 16_384
"""Bytes of a body that are buffered before its reader takes them: at most twice this and one read (`read_bufsize` of
aiohttp)."""

HTTP_LIMITS = {"max_line_size": 2_048, "max_field_size": 4_096, "max_headers": 32}
"""Bytes of the request line and of a header, and the number of headers: an incomplete head holds at most 130 KiB. The
API server sends about eight headers; the longest is its token, if it has one."""

IDLE_SECONDS = 100.0
"""How long an idle connection is kept. The API server's client (Go) closes it after 90 s, which must be earlier."""

LINGER_SECONDS = 1.0
"""How long the rest of a refused body is read and dropped, so that the API server sees why. A connection that is closed
with unread bytes is reset, and the answer may be lost, as it may after `dismiss`."""


CROWD = 4
"""One host has a crowd with one of so many parts of all connections that there may be."""

DROPS = 12
"""Twelve times 5 s, since a connection that is used all the time nearly always has unread data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Seconds. The API server waits 5 s for a review, so a slower answer is useless to it.

    head: for the TLS handshake, and for a request's head from its first byte on. answer: how long a client may read
    nothing of an answer; to read it in small pieces it has `DROPS` times as long.
    unused: for the first byte of the first request after the handshake.
    """

    head: float = 5.0
    answer: float = 5.0
    unused: float = IDLE_SECONDS

    @property
    def precision(self) -> float:
        """Return the time between two checks of the connections."""
        return min(0.5, self.head / 4, self.answer / 4)


class Connection(web.RequestHandler):
    """One connection, from when it is accepted. Only its `Connections` changes its state."""

    __slots__ = (
        "_connections",
        "_socket",
        "_wire",
        "address",
        "handshake",
        "head_since",
        "is_aborted",
        "is_begun",
        "is_busy",
        "unread_since",
        "unused_since",
    )

    def __init__(
        self,
        accepted: socket.socket,
        address: str,
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
        # The transport's own buffer has only what is not encrypted yet; the rest is in that of the transport below.
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(connections.deadlines.answer * 1e3))
        self._socket = accepted
        self._connections = connections
        self.address = address
        """The host that it comes from."""
        self._wire: asyncio.Transport | None = None
        """The transport until the connection is lost; aiohttp drops its reference earlier."""
        self.handshake: asyncio.Task[None] | None = None
        """Its TLS handshake, while that is in progress."""
        self.is_begun = False
        """Whether the handshake has begun; from then on a transport owns the socket."""
        self.head_since: float | None = connections.now
        """Since when the TLS handshake, or the rest of a request's head, is awaited; None if neither is."""
        self.unused_since: float | None = None
        """Since when it is open without a first request; None once that has come. The API server's client (Go) opens
        such connections: where another one becomes idle before its handshake is over, it keeps the new one for later,
        and a request that it sends while we close it fails."""
        self.unread_since: float | None = None
        """Since when the client has unread data; None if it has read everything."""
        self.is_busy = False
        """Whether a request is being answered."""
        self.is_aborted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.is_aborted:
            transport.abort()  # type: ignore[attr-defined] # a transport of a stream
            return
        self._wire = transport  # type: ignore[assignment]
        self.head_since = None
        self.unused_since = self._connections.now
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        # An error of the system; an error of the TLS shutdown, which the client need not answer, has no number.
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
        """Answer what is not HTTP, without a log line, since any client could fill the log with these."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return super().handle_error(request, status, exc, message)
        self._connections.refuse(Refusal.MALFORMED)
        answer = web.Response(status=status, text="this is not HTTP as the API server speaks it\n")
        answer.force_close()
        return answer

    def begin(self) -> None:
        """Record that a request's head was received."""
        self.is_busy = True
        self.head_since = None
        self.unused_since = None

    def prove(self) -> None:
        """Record that the request has a path that only the API server knows."""
        self._connections.prove(self)

    def dismiss(self) -> None:
        """Read nothing more, and close once the answer is sent, without waiting for the client's TLS shutdown."""
        if self._wire is not None:
            self._wire.pause_reading()
            self._loop.call_later(DISMISSED_SECONDS, self.abort)

    def end(self) -> None:
        """Record that this process has answered the request; the client may still have to read it."""
        self.is_busy = False

    def abort(self) -> None:
        """Close at once, whatever is in progress."""
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
    """The open connections, at most `most`. A connection is proven with a request to a path that the API server knows.

    If there are too many, a new connection replaces the oldest unproven one of the host that has most of them, if these
    are a `CROWD`, or else the oldest of all unproven ones, or else the proven one that has been idle for longest. So
    unproven clients close each other's connections and never those of the API server, which are proven with their first
    request; until then it has few and young ones, so that those of one host with many go first, and those of many
    hosts, which have been there for longer.
    """

    def __init__(self, most: int, deadlines: Deadlines, refuse: Refuse) -> None:
        self._most = most
        self.deadlines = deadlines
        self.refuse = refuse
        self._admitted = 0
        self._strangers: dict[str, dict[Connection, int]] = {}
        """The unproven ones by host, each host's oldest first, with their numbers; no host without any."""
        self._proven: dict[Connection, None] = {}
        """The one that is unused for longest first."""
        self.now = 0.0
        """Seconds, as of the last check. Time in which this process did not run does not count, since it could receive
        nothing then."""

    def __len__(self) -> int:
        """Return the number of connections."""
        return sum(map(len, self._strangers.values())) + len(self._proven)

    def admit(self, connection: Connection) -> bool:
        """Add a connection, if necessary in place of another one. Returns False if all others are busy."""
        if len(self) >= self._most:
            self.refuse(Refusal.CONNECTIONS)
            least = self._least_valuable()
            if least is None:
                return False
            self._close(least)
        self._admitted += 1
        self._strangers.setdefault(connection.address, {})[connection] = self._admitted
        return True

    def prove(self, connection: Connection) -> None:
        """Record that a connection is the API server's and in use. A no-op for one that was closed meanwhile."""
        if connection in self._proven or connection in self._strangers.get(connection.address, ()):
            self.forget(connection)
            self._proven[connection] = None

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is closed."""
        self._proven.pop(connection, None)
        of_host = self._strangers.get(connection.address)
        if of_host is not None:
            of_host.pop(connection, None)
            if not of_host:
                del self._strangers[connection.address]

    def close_overdue(self, elapsed: float) -> None:
        """Close the connections that are past a deadline. elapsed: seconds since the last check."""
        self.now += min(elapsed, 2 * self.deadlines.precision)
        for connection in self._all():
            refusal = self._overdue(connection)
            if refusal is not None:
                self.refuse(refusal)
                self._close(connection)

    def close_all(self) -> None:
        """Close all connections at once."""
        for connection in self._all():
            self._close(connection)

    def _overdue(self, connection: Connection) -> Refusal | None:
        if connection.head_since is not None and self.now - connection.head_since > self.deadlines.head:
            return Refusal.HEAD
        if connection.unused_since is not None and self.now - connection.unused_since > self.deadlines.unused:
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

    def _all(self) -> list[Connection]:
        return [*chain.from_iterable(self._strangers.values()), *self._proven]

    def _least_valuable(self) -> Connection | None:
        """Return the connection that is closed for a new one, if there is any that may be."""
        if self._strangers:
            most: dict[Connection, int] = max(self._strangers.values(), key=len)
            if len(most) * CROWD < self._most:
                most = min(self._strangers.values(), key=lambda of_host: next(iter(of_host.values())))
            return next(iter(most))
        return next((connection for connection in self._proven if not connection.is_busy), None)
