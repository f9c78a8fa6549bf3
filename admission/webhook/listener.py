"""A listening port: its sockets, and the connections that are accepted there, with or without TLS.

The servers of asyncio accept without a bound, and report a connection only after its TLS handshake. Here a connection
counts from the moment when it is accepted.
"""

import asyncio
import errno
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import structlog
from aiohttp import web

from admission.errors import FixError
from admission.webhook.connections import Connection, Connections, Deadlines
from admission.webhook.refusals import Refusal, Refuse

log = structlog.get_logger(__name__)

BACKLOG = 1_024
"""Connections that may wait to be accepted."""

BATCH = 32
"""Connections that are accepted before the event loop serves others."""

RECEIVE_BUFFER = 32_768
"""Bytes, which Linux doubles: the receive buffer of a connection, and the most that is read at once. By default the
system buffers up to 6 MiB (tcp(7), tcp_rmem)."""

HANDSHAKES = 4
"""TLS handshakes that are begun before the event loop serves others: each takes about half a millisecond."""

OWN_FILES = 256
"""Files that this process needs besides these connections, as for the API server, the database and its workers."""

GOODBYE_SECONDS = 1.0
"""How long a closed connection waits for the client's TLS shutdown, and a stopping listener for requests."""

ACCEPT_AGAIN_SECONDS = 0.2
"""Pause after an accept that failed, as for want of files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where to listen. setting: the section of the settings that says so, for errors.

    shared: whether other processes listen there, too, and share its connections (SO_REUSEPORT).
    """

    host: str
    port: int
    setting: str
    shared: bool = False


class Listener:
    """An open port. Only the listener accepts its connections and begins their TLS handshakes.

    A handshake begins once data has arrived, on the newest connection first: after a flood of connections, later ones
    do not wait until all of it is handled.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        handler: web.Server,
        *,
        connections: Connections,
        deadlines: Deadlines,
        context: ssl.SSLContext | None,
        refuse: Refuse,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self.port = int(sockets[0].getsockname()[1])
        self._sockets = list(sockets)
        self._handler = handler
        self._connections = connections
        self._deadlines = deadlines
        self._context = context
        self._refuse = refuse
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._heard: list[tuple[Connection, socket.socket]] = []
        """Connections on which data has arrived and whose TLS handshake has not begun; the newest last."""

    def start(self) -> None:
        """Accept connections."""
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def stop(self) -> None:
        """Accept no more connections; open ones continue."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()

    async def close_overdue(self) -> None:
        """Close connections that are past a deadline, until cancelled."""
        last = self._loop.time()
        while True:
            await asyncio.sleep(self._deadlines.precision)
            elapsed = self._loop.time() - last
            last += elapsed
            self._connections.close_overdue(elapsed)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(BATCH):
            try:
                accepted, (address, *_) = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("no connection can be accepted", error=str(error))
                self._loop.remove_reader(listening)
                self._loop.call_later(ACCEPT_AGAIN_SECONDS, self._accept_again, listening)
                return
            accepted.settimeout(0)
            self._admit(accepted, address)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _admit(self, accepted: socket.socket, address: str) -> None:
        connection = Connection(accepted, address, self._connections, self._handler, self._loop)
        if not self._connections.admit(connection):
            accepted.close()
            return

        self._loop.add_reader(accepted, self._hear, connection, accepted)

    def _hear(self, connection: Connection, accepted: socket.socket) -> None:
        self._loop.remove_reader(accepted)
        self._heard.append((connection, accepted))
        if len(self._heard) == 1:
            self._loop.call_soon(self._begin_handshakes)

    def _begin_handshakes(self) -> None:
        begun = 0
        while self._heard and begun < HANDSHAKES:
            connection, accepted = self._heard.pop()
            if not connection.is_aborted:
                self._begin_handshake(connection, accepted)
                begun += 1
        if self._heard:
            self._loop.call_soon(self._begin_handshakes)

    def _begin_handshake(self, connection: Connection, accepted: socket.socket) -> None:
        def done(_task: asyncio.Task[None]) -> None:
            connection.handshake = None
            if not connection.is_open:  # the handshake failed, or was cancelled before it began
                self._connections.forget(connection)
                accepted.close()

        connection.is_begun = True
        connection.handshake = self._tasks.create_task(self._open(connection, accepted), name="TLS handshake")
        connection.handshake.add_done_callback(done)

    async def _open(self, connection: Connection, accepted: socket.socket) -> None:
        try:
            if self._context is None:
                await self._loop.connect_accepted_socket(lambda: connection, accepted)
                return
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._deadlines.head,
                ssl_shutdown_timeout=GOODBYE_SECONDS,
            )
        except ConnectionAbortedError:  # the error by which event loops report the timeout of a handshake
            self._refuse(Refusal.HEAD)
        except OSError as error:  # also of TLS
            log.debug("a connection was lost before its first request", error=str(error))


@asynccontextmanager
async def listening(
    address: Address,
    handler: web.Server,
    *,
    most: int,
    deadlines: Deadlines,
    refuse: Refuse,
    context: ssl.SSLContext | None = None,
) -> AsyncIterator[Listener]:
    """Listen until the block is left; then close all connections, the busy ones after `GOODBYE_SECONDS`.

    most: connections that may be open at a time. context: for TLS; None: without. Raises FixError if it cannot listen
    there.
    """
    connections = Connections(_with_files(most, address), deadlines, refuse)
    sockets = await _bound(address)
    raised: BaseException | None = None
    async with asyncio.TaskGroup() as tasks:
        listener = Listener(
            sockets,
            handler,
            connections=connections,
            deadlines=deadlines,
            context=context,
            refuse=refuse,
            tasks=tasks,
        )
        checks = tasks.create_task(listener.close_overdue(), name="close overdue connections")
        listener.start()
        try:
            yield listener
        except BaseException as error:  # noqa: BLE001 - raised below; the group would hand it on within another one
            raised = error
        listener.stop()
        # Requests that were received are begun first, as in `web.BaseRunner.cleanup`.
        await asyncio.sleep(0)
        handler.pre_shutdown()
        await handler.shutdown(GOODBYE_SECONDS)
        connections.close_all()
        checks.cancel()
    if raised is not None:
        raise raised


async def ensure_free(address: Address) -> None:
    """Raise FixError if the address is in use: processes that share a port would get no error from the system."""
    for probe in await _bound(replace(address, shared=False)):
        probe.close()


async def _bound(address: Address) -> list[socket.socket]:
    """Return a socket for each address that the host's name has. If the port is 0, all get that of the first."""
    port = address.port
    with ExitStack() as opened:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                address.host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            sockets = []
            for family, _, _, _, where in dict.fromkeys(found):
                one = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
                one.settimeout(0)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
                if address.shared:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.bind((where[0], port, *where[2:]))
                one.listen(BACKLOG)
                port = port or int(one.getsockname()[1])
                sockets.append(one)
        except OSError as error:
            raise FixError(_error(address, error)) from error
        opened.pop_all()
        return sockets


def _error(address: Address, error: OSError) -> str:
    """Return why nothing can listen at this address, and the remedy."""
    match error.errno:
        case errno.EADDRINUSE:
            fix = f"another program listens there; stop it, or choose another {address.setting}.port"
        case errno.EACCES:
            fix = f"this user may not; choose a {address.setting}.port of 1024 or more"
        case _:
            fix = f"set {address.setting}.host to an address of this machine"
    # A host name that does not resolve has no message of the system's.
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    return f"cannot listen on {address.host} port {address.port}: {reason}; {fix}"


def _with_files(most: int, address: Address) -> int:
    """Return how many connections there can be: at most as many as the system lets this process open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return most
    possible = max(1, soft - OWN_FILES)
    log.warning("few connections are kept, since few files may be open", connections=possible, port=address.port)
    return possible
