"""Messages between the first process and each worker: JSON objects, one per line, over a socket pair.

The first process sends the worker's task, again whenever it changes, and the pages that the worker requests; the worker
sends reports and requests for pages. When either process ends, however it ends, the other one reads the end of the
stream.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Self

import msgspec

from admission.errors import FixError, RetryError

REPORT_SECONDS = 1.0
"""The time between two reports of a worker."""

ANSWER_SECONDS = 5.0
"""How long a worker waits for a page from the first process."""

MAX_LINE_BYTES = 2**26
"""Bytes. A page of metrics has several lines for each queue."""

Tally = tuple[str, str, str, list[int], float]
"""An endpoint, an outcome and a reason; the number of reviews in each duration bucket of the metrics; and their total
seconds."""


class Task(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a worker has to do, initially or after a change. settings: the application's, not decoded here."""

    number: int
    settings: msgspec.Raw


class Page(msgspec.Struct, frozen=True, tag=True):
    """The content of a path for probes or Prometheus."""

    code: int
    text: str
    content_type: str = "text/plain; charset=utf-8"


class Report(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A worker's state. waiting: what it lacks to be ready; tallies: its reviews since its start.

    refusals: what it refused before it was judged, by reason.
    """

    waiting: list[str]
    tallies: list[Tally]
    refusals: dict[str, int] = {}


class PageRequest(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A worker's request for the first process's page at a path."""

    path: str


Message = Task | Page | Report | PageRequest

_decoder = msgspec.json.Decoder(Message)
_encoder = msgspec.json.Encoder()


class Channel:
    """One end of the connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def from_socket(cls, end: socket.socket) -> Self:
        """Return a channel over a connected socket."""
        return cls(*await asyncio.open_connection(sock=end, limit=MAX_LINE_BYTES))

    async def send(self, message: Message) -> None:
        """Send a message. Raises OSError if the other process has ended."""
        self._writer.write(_encoder.encode(message) + b"\n")
        await self._writer.drain()

    async def receive(self) -> Message | None:
        """Return the next message; None if the other process has ended, even amid a message."""
        try:
            data = await self._reader.readline()
        except ConnectionError:
            return None
        return _decoder.decode(data) if data.endswith(b"\n") else None

    def close(self) -> None:
        """Close this end, which the other process reads as the end of the stream."""
        self._writer.close()


class WorkerChannel:
    """A worker's end of the connection, once it has its task."""

    def __init__(self, channel: Channel, task: Task) -> None:
        self.task = task
        self._channel = channel
        self._pending_pages: list[asyncio.Future[Page]] = []

    @classmethod
    async def from_socket(cls, end: socket.socket) -> Self:
        """Wait for the task. Raises FixError if none is sent."""
        channel = await Channel.from_socket(end)
        task = await channel.receive()
        if not isinstance(task, Task):
            channel.close()
            raise FixError("a worker is started by `muster serve --workers N` alone, which tells it what to do")
        return cls(channel, task)

    def close(self) -> None:
        """Close this end, which the first process reads as the end of the stream."""
        self._channel.close()

    async def listen(self, on_task: Callable[[Task], object]) -> None:
        """Receive messages until the first process ends. on_task: called with each new task."""
        while isinstance(message := await self._channel.receive(), Page | Task):
            if isinstance(message, Task):
                on_task(message)
                continue
            pending = self._pending_pages.pop(0)
            if not pending.done():
                pending.set_result(message)

    async def report(
        self, waiting: Callable[[], Sequence[str]], tallies: Callable[[], tuple[list[Tally], dict[str, int]]]
    ) -> None:
        """Send reports until cancelled. If the first process has ended, `listen` returns; here it is no error."""
        while True:
            try:
                reviews, refusals = tallies()
                await self._channel.send(Report(waiting=list(waiting()), tallies=reviews, refusals=refusals))
            except OSError:
                return
            await asyncio.sleep(REPORT_SECONDS)

    async def page_request(self, path: str) -> Page:
        """Return the first process's page at a path. Raises RetryError if it does not answer in time."""
        pending: asyncio.Future[Page] = asyncio.get_running_loop().create_future()
        self._pending_pages.append(pending)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._channel.send(PageRequest(path=path))
                return await pending
        except (TimeoutError, OSError) as error:
            raise RetryError("the first of the workers does not answer") from error
