"""A network that can fail: lines to the API server and to PostgreSQL, and the Service in front of the webhooks.

A line carries bytes from a port of its own to another one. What it does to them depends on its weather. While packets
are lost nothing arrives, on old connections and on new ones; once it is over everything does, late, as TCP sends it
again. (Only the connection itself comes about, since the system accepts it before we are asked.)

A Service does what kube-proxy and the kubelet's probes do together: a new connection goes to the next endpoint that is
ready, and stays there. Nobody tries another endpoint for it, and connections to one that is no longer ready stand.
"""

import asyncio
import itertools
import socket
import struct
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

PROBE_SECONDS = 1.0
PROBE_FAILURES = 3
"""How often the endpoints are probed, how long an answer may take, and how many failures in a row make one unready. The
chart has 5 s instead of 1 s."""

LATE_SECONDS = 0.5
NO_LINGER = struct.pack("ii", 1, 0)
"""Closes with a RST, and what was not sent yet is gone."""

READY = b"200"


class Weather(Enum):
    """What becomes of the bytes on a line."""

    CLEAR = auto()
    """They arrive."""
    LOST = auto()
    """They do not arrive as long as this lasts."""
    LATE = auto()
    """They arrive half a second later, one piece after the other."""
    CUT = auto()
    """Connections are reset, old ones and new ones."""


class Network:
    """A context: the thread that carries everything."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait_for(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def line(self, port: int) -> "Line":
        """Return a line to a port of 127.0.0.1."""
        line = Line(self._loop)

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await line.carry(port, reader, writer)

        line.port = self._wait_for(self._listen(carry))
        return line

    def service(self, endpoints: Sequence["Endpoint"]) -> "Service":
        """Return a Service of these endpoints, which are probed from now on."""
        service = Service(tuple(endpoints), Line(self._loop))
        service.port = self._wait_for(self._listen(service.carry))
        for endpoint in endpoints:
            self._wait_for(self._keep(endpoint.probe_forever()))
        return service

    async def _listen(self, carry: Any) -> int:
        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._keep(_carried(carry(reader, writer), writer))

        server = await asyncio.start_server(served, "127.0.0.1", 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _carried(carrying: Coroutine[Any, Any, None], writer: asyncio.StreamWriter) -> None:
    try:
        await carrying
    except OSError:  # nobody listens at the other end
        _reset(writer)
    finally:
        writer.close()


class Line:
    """One way through the network. port: where it begins."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.port = 0
        self._loop = loop
        self._weather = Weather.CLEAR
        self._carries = asyncio.Event()
        self._carries.set()
        self._ends: set[asyncio.StreamWriter] = set()

    def turn(self, weather: Weather) -> None:
        """Change the weather, from any thread."""
        asyncio.run_coroutine_threadsafe(self._turn(weather), self._loop).result()

    async def _turn(self, weather: Weather) -> None:
        self._weather = weather
        if weather is Weather.LOST:
            self._carries.clear()
        else:
            self._carries.set()
        if weather is Weather.CUT:
            for end in list(self._ends):
                _reset(end)

    async def carry(self, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it."""
        await self._carries.wait()
        if self._weather is Weather.CUT:
            _reset(writer)
            return
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", target)
        ends = {writer, there_writer}
        self._ends |= ends
        ways = [
            asyncio.create_task(self._pass_on(reader, there_writer)),
            asyncio.create_task(self._pass_on(there_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._ends -= ends
            there_writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            data = await reader.read(1 << 16)
            if self._weather is Weather.LATE:
                await asyncio.sleep(LATE_SECONDS)
            await self._carries.wait()
            if not data:
                return
            writer.write(data)
            await writer.drain()


@dataclass(slots=True, kw_only=True)
class Endpoint:
    """One pod of a Service. port: where it answers; plain: where its probes are."""

    port: int
    plain: int
    ready: bool = False
    _failed: int = 0

    async def probe_forever(self) -> None:
        """Probe as the kubelet does. One that has ended is unready at once: the kubelet sees its container end."""
        while True:
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    answers = await asked(self.plain)
            except ConnectionRefusedError:
                self.ready = False
            except OSError:  # TimeoutError is one
                self._fail()
            else:
                if answers:
                    self.ready, self._failed = True, 0
                else:
                    self._fail()
            await asyncio.sleep(PROBE_SECONDS)

    def _fail(self) -> None:
        self._failed += 1
        if self._failed >= PROBE_FAILURES:
            self.ready = False


async def asked(plain: int) -> bool:
    """Say whether /readyz says yes. Raises OSError where nobody answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", plain)
    try:
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        return READY in await reader.readline()
    finally:
        _reset(writer)


@dataclass(slots=True)
class Service:
    """One address for several endpoints. port: the address."""

    endpoints: tuple[Endpoint, ...]
    line: Line
    port: int = 0
    _turns: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def ready(self) -> int:
        """How many endpoints new connections go to."""
        return sum(endpoint.ready for endpoint in self.endpoints)

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection to the endpoint whose turn it is; without any, or where it refuses, it is reset."""
        ready = [endpoint for endpoint in self.endpoints if endpoint.ready]
        if ready:
            await self.line.carry(ready[next(self._turns) % len(ready)].port, reader, writer)
        else:
            _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    held = writer.get_extra_info("socket")
    if held is not None and held.fileno() >= 0:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    writer.transport.abort()
