"""The load, in a process of its own: `python -m tests.bench.loading`, told by one JSON object on standard input.

Every client sends its next review when the last one is answered, over a connection that is kept. Measuring starts when
all connections stand and have been used. The requests are made beforehand, but for a serial number in the names of each
pod; they are written to the socket and the answers searched by hand, on uvloop: a client library would need more of the
processor than the servers do, and the load would be what is measured. What this process needed itself is told, too.
"""

import asyncio
import json
import os
import ssl
import sys
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import uvloop

from tests.bench import cluster
from tests.bench.serving import ENDPOINTS, HOST

DIGITS = len(cluster.SERIAL)
BUFFER = 4_096
"""Bytes that Go's HTTP client, which the API server uses, writes at first; the rest follows in another TLS record."""

SAMPLES = 100
"""How often memory is looked at while a number of reviews is sent."""


@dataclass(kw_only=True)
class Span:
    """When requests count: from when every client has been answered once, for some seconds or a number of requests."""

    clients: int
    seconds: float | None
    reviews: int | None
    pids: list[int]
    ready: int = 0
    began: float = 0.0
    began_cpu: float = 0.0
    began_own: float = 0.0
    latencies: list[float] = field(default_factory=list)
    answered: int = 0
    resident: list[tuple[int, int]] = field(default_factory=list)
    """After so many reviews, so many bytes."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    told: dict[str, Any] = field(default_factory=dict)

    def note_ready(self) -> bool:
        """Note that one more client has been answered once; whether it is the last one."""
        self.ready += 1
        if self.ready < self.clients:
            return False
        self.began_cpu, self.began_own = _cpu(self.pids), process_time()
        self.began = perf_counter()
        return True

    def note(self, sent: float, received: float) -> bool:
        """Note an answer; return whether another request shall be sent."""
        if self.over.is_set():
            return False
        self.answered += 1
        if self.reviews is None:
            self.latencies.append(received - sent)
        elif self.answered % max(1, self.reviews // SAMPLES) == 0:
            self.resident.append((self.answered, _resident(self.pids)))
        if received - self.began < (self.seconds or 1e9) and self.answered < (self.reviews or 1e18):
            return True
        self._end(received)
        return False

    def _end(self, now: float) -> None:
        self.told = {
            "seconds": now - self.began,
            "answered": self.answered,
            "cpu": _cpu(self.pids) - self.began_cpu,
            "own_cpu": process_time() - self.began_own,
            "latencies": sorted(self.latencies),
            "resident": self.resident,
        }
        self.over.set()


class Client(asyncio.Protocol):
    """One client, and its connection."""

    def __init__(self, requests: list[bytes], serial: "count[int]", span: Span, waiting: "list[Client]") -> None:
        self._requests = requests
        self._serial = serial
        self._span = span
        self._waiting = waiting
        """Clients that have been answered once, while others have not."""
        self._transport: Any = None
        self._sent = 0.0
        self._warm = False
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.send()

    def send(self) -> None:
        number = next(self._serial)
        request = self._requests[number % len(self._requests)].replace(_SERIAL, b"%0*d" % (DIGITS, number))
        self._sent = perf_counter()
        self._transport.write(request[:BUFFER])
        self._transport.write(request[BUFFER:])

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if not _is_whole(self._answer):
            return
        received = perf_counter()
        if not self._answer.startswith(b"HTTP/1.1 200 ") or b'"allowed":true' not in self._answer:
            raise RuntimeError(f"not allowed: {self._answer[:500]!r}")
        self._answer = b""
        if self._warm:
            if self._span.note(self._sent, received):
                self.send()
            return
        self._warm = True
        self._waiting.append(self)
        if self._span.note_ready():
            for client in self._waiting:
                client.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._span.over.is_set():
            raise RuntimeError("the server has closed a connection") from exc


_SERIAL = cluster.SERIAL.encode()


def _is_whole(answer: bytes) -> bool:
    head = answer.find(b"\r\n\r\n")
    if head < 0:
        return False
    length = answer.index(b"Content-Length: ") + 16
    return len(answer) == head + 4 + int(answer[length : answer.index(b"\r\n", length)])


async def load(*, port: int, authority: str, shape: str, **span: Any) -> dict[str, Any]:
    """Return the latencies of all requests, and the processor time of the server and of this process; in seconds."""
    requests = _requests(cluster.Shape(shape))
    loop = asyncio.get_running_loop()
    failed: asyncio.Future[None] = loop.create_future()

    def fail(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not failed.done():
            failed.set_exception(context.get("exception") or RuntimeError(context["message"]))

    loop.set_exception_handler(fail)
    measured, serial, waiting = Span(**span), count(), list[Client]()
    context = ssl.create_default_context(cadata=authority)
    for _ in range(measured.clients):
        await loop.create_connection(lambda: Client(requests, serial, measured, waiting), HOST, port, ssl=context)
    over = loop.create_task(measured.over.wait())
    await asyncio.wait({over, asyncio.ensure_future(failed)}, return_when=asyncio.FIRST_COMPLETED)  # type: ignore[type-var]
    if failed.done():
        failed.result()
    return measured.told


def _requests(shape: cluster.Shape) -> list[bytes]:
    """Return requests as the API server sends them, to the mutating and the validating endpoint in turn."""
    bodies = {
        path: [json.dumps(review, separators=(",", ":")).encode() for review in cluster.reviews(path, shape)]
        for path in ENDPOINTS
    }
    pairs = zip(*(bodies[endpoint] for endpoint in ENDPOINTS), strict=True)
    return [_request(endpoint, body) for pair in pairs for endpoint, body in zip(ENDPOINTS, pair, strict=True)]


def _request(endpoint: str, body: bytes) -> bytes:
    head = (
        f"POST /{endpoint}?timeout=5s HTTP/1.1\r\nHost: {HOST}\r\nUser-Agent: kube-apiserver-admission\r\n"
        f"Content-Length: {len(body)}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n"
        "Accept-Encoding: gzip\r\n\r\n"
    )
    return head.encode() + body


def _cpu(pids: list[int]) -> float:
    """Return the processor time that processes have used, from Linux' /proc (proc_pid_stat(5))."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _resident(pids: list[int]) -> int:
    """Return how many bytes processes have in memory."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    # Not sys.stdout: under PYTHONUNBUFFERED that writes as much as the pipe takes at once, and forgets the rest.
    with open(sys.stdout.fileno(), "w", encoding="utf-8", closefd=False) as told:
        json.dump(uvloop.run(load(**json.load(sys.stdin))), told)
