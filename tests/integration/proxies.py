"""A network that fails at the worst moment: a TCP proxy between the ledger and PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum, auto

COMMIT = b"COMMIT;"


class Fault(Enum):
    """What happens to the next COMMIT."""

    LOSE_REQUEST = auto()
    """The connection breaks before the server has read it."""
    LOSE_ANSWER = auto()
    """The server commits, and the connection breaks before its answer arrives."""
    SWALLOW_ANSWER = auto()
    """The server commits, and nothing arrives any more on a connection that looks open."""


class Proxy:
    """What a test sets and sees."""

    def __init__(self) -> None:
        self._next: Fault | None = None
        self.hangs = False
        """Whether nothing passes in either direction, as if packets were dropped."""
        self._lines: list[_Line] = []

    def fail(self, fault: Fault) -> None:
        """Let the next COMMIT fail, once."""
        self._next = fault

    def has_failed(self) -> bool:
        """Say whether there was a COMMIT since."""
        return self._next is None

    def fault_of_a_commit(self) -> Fault | None:
        """Return what happens to a COMMIT that is seen now."""
        fault, self._next = self._next, None
        return fault

    async def serve(self, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", target)
        line = _Line(self, writer, there_writer)
        self._lines.append(line)
        await asyncio.gather(line.there(reader), line.back(there_reader))

    def end(self) -> None:
        """Break every connection."""
        for line in self._lines:
            line.hang_up()


class _Line:
    def __init__(self, proxy: Proxy, here: asyncio.StreamWriter, there: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._here = here
        self._there = there
        self._fault: Fault | None = None

    async def there(self, reader: asyncio.StreamReader) -> None:
        """Carry what the ledger says."""
        async for data in _chunks(reader):
            if self._proxy.hangs:
                continue
            if COMMIT in data:
                self._fault = self._proxy.fault_of_a_commit()
            if self._fault is Fault.LOSE_REQUEST:
                break
            self._there.write(data)
        self.hang_up()

    async def back(self, reader: asyncio.StreamReader) -> None:
        """Carry what PostgreSQL says."""
        async for data in _chunks(reader):
            if self._fault is Fault.LOSE_ANSWER:
                break
            if self._fault is None and not self._proxy.hangs:
                self._here.write(data)
        self.hang_up()

    def hang_up(self) -> None:
        """Break the connection on both sides."""
        self._here.transport.abort()
        self._there.transport.abort()


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    try:
        while data := await reader.read(1 << 16):
            yield data
    except ConnectionError:
        return


@asynccontextmanager
async def between(url: str) -> AsyncIterator[tuple[str, Proxy]]:
    """Yield the URL that leads to a database through a proxy, and the proxy."""
    before, _, rest = url.rpartition("127.0.0.1:")
    port, _, database = rest.partition("/")
    proxy = Proxy()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await proxy.serve(int(port), reader, writer)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"{before}127.0.0.1:{server.sockets[0].getsockname()[1]}/{database}", proxy
        proxy.end()
