"""The line between the first process and each worker: JSON objects, one a line, on a pair of sockets.

Down go the worker's task, again whenever it changes, and the pages that it asks for; up go its reports, and what it
asks for. When either process is gone, however it went, the other one reads the end of the stream.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Self

import msgspec

from admission.errors import FixError, RetryError

REPORT_SECONDS = 1.0
"""Between two reports of a worker."""

ANSWER_SECONDS = 5.0
"""How long a worker waits for a page of the first process."""

LONGEST_LINE = 2**26
"""Bytes. A page of metrics has some lines for each queue."""

Tally = tuple[str, str, str, list[int], float]
"""Of one door, outcome and reason: reviews by how long they took, as the metrics' buckets, and seconds of them all."""


class Task(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a worker is to do, at first and later. settings: those of the application, which are of no interest here."""

    number: int
    settings: msgspec.Raw


class Page(msgspec.Struct, frozen=True, tag=True):
    """What stands at a path for probes or Prometheus."""

    code: int
    text: str
    content_type: str = "text/plain; charset=utf-8"


class Report(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How a worker is. waiting: what it lacks to be ready; tallies: the reviews since it began."""

    waiting: list[str]
    tallies: list[Tally]


class PageRequest(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A worker asks for what the first process shows at a path."""

    path: str


Message = Task | Page | Report | PageRequest

_decoder = msgspec.json.Decoder(Message)
_encoder = msgspec.json.Encoder()


class Line:
    """One end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def from_socket(cls, end: socket.socket) -> Self:
        """Take over a connected socket."""
        return cls(*await asyncio.open_connection(sock=end, limit=LONGEST_LINE))

    async def send(self, message: Message) -> None:
        """Send a message. Raises OSError when the other process is gone."""
        self._writer.write(_encoder.encode(message) + b"\n")
        await self._writer.drain()

    async def receive(self) -> Message | None:
        """Return the next message; None when the other process is gone, were it in the middle of one."""
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        return _decoder.decode(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        """Let the other process know that this one is done."""
        self._writer.close()


class Link:
    """A worker's end, once it has its task."""

    def __init__(self, line: Line, task: Task) -> None:
        self.task = task
        self._line = line
        self._asked: list[asyncio.Future[Page]] = []

    @classmethod
    async def from_socket(cls, end: socket.socket) -> Self:
        """Wait for the task. Raises FixError when nobody gives one."""
        line = await Line.from_socket(end)
        task = await line.receive()
        if not isinstance(task, Task):
            line.close()
            raise FixError("a worker is started by `muster serve --workers N` alone, which tells it what to do")
        return cls(line, task)

    def close(self) -> None:
        """Let the first process know that this one is done."""
        self._line.close()

    async def listen(self, changed: Callable[[Task], object]) -> None:
        """Hear the first process until it is gone. changed: told of its task when that is another one."""
        while isinstance(message := await self._line.receive(), Page | Task):
            if isinstance(message, Task):
                changed(message)
                continue
            asked = self._asked.pop(0)
            if not asked.done():
                asked.set_result(message)

    async def report(self, waiting: Callable[[], Sequence[str]], tallies: Callable[[], list[Tally]]) -> None:
        """Tell the first process how this one is, until cancelled. That it is gone is `listen`'s to notice."""
        while True:
            try:
                await self._line.send(Report(waiting=list(waiting()), tallies=tallies()))
            except OSError:
                return
            await asyncio.sleep(REPORT_SECONDS)

    async def page_request(self, path: str) -> Page:
        """Return what the first process shows at a path. Raises RetryError when it does not answer in time."""
        asked: asyncio.Future[Page] = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._line.send(PageRequest(path=path))
                return await asked
        except (TimeoutError, OSError) as error:
            raise RetryError("the first of the workers does not answer") from error
