"""Connections that are slow and bodies that stall, in a process of its own: `python -m tests.bench.strangers`.

Told by one JSON object on standard input; it prints a line when all have begun, goes on until its standard input ends,
and then prints how often each kind was closed. Whoever is closed or refused comes again after `pause` seconds.
"""

import asyncio
import json
import os
import ssl
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

import uvloop

HOST = "127.0.0.1"
FROM = "127.0.0.2"
"""They are on another host than the API server."""

DECLARED = 8 * 1024 * 1024
DROP_SECONDS = 1.0

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Strangers:
    """Those who hold connections, and what became of them."""

    def __init__(self, *, port: int, paths: dict[str, str], sent: int, pause: float) -> None:
        """paths: of stalled bodies, by kind; sent: bytes of each that are sent before it stalls."""
        self._port = port
        self._paths = paths
        self._sent = sent
        self._pause = pause
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        self._there = 0
        self._came = asyncio.Condition()
        self.ended: Counter[str] = Counter()

    async def all_there(self, number: int) -> None:
        """Wait until so many have connected, if they could, and have sent what they send at first."""
        async with self._came:
            await self._came.wait_for(lambda: self._there >= number)

    async def hold(self, kind: str) -> None:
        """Connect again and again, as one of a kind."""
        is_first = True
        while True:
            stream = await self._open(kind)
            if is_first:
                is_first = False
                await self._arrive()
            outcome = "closed" if stream is None else await self._rest(kind, stream)
            self.ended[f"{kind}: {outcome}"] += 1
            await asyncio.sleep(self._pause)

    async def _arrive(self) -> None:
        async with self._came:
            self._there += 1
            self._came.notify_all()

    async def _open(self, kind: str) -> Stream | None:
        """Connect, and send what is sent at first: nothing, half a head, or a head and a part of the body."""
        context = None if kind == "silent" else self._context
        try:
            stream = await asyncio.open_connection(HOST, self._port, ssl=context, local_addr=(FROM, 0))
        except OSError:
            return None
        if kind == "head":
            stream[1].write(b"POST /mutate HTTP/1.1\r\nHost: muster\r\nContent-Ty")
        elif kind != "silent":
            head = f"POST {self._paths[kind]} HTTP/1.1\r\nHost: muster\r\nContent-Type: application/json\r\n"
            stream[1].write(head.encode() + b"Content-Length: %d\r\n\r\n" % DECLARED)
            stream[1].write(b"[" + b" " * (self._sent - 1))
        return stream

    async def _rest(self, kind: str, stream: Stream) -> str:
        """Wait for what becomes of it; a head goes on drop by drop."""
        outcome = asyncio.ensure_future(_outcome(stream))
        while kind == "head" and not outcome.done():
            stream[1].write(b"x")
            await asyncio.wait([outcome], timeout=DROP_SECONDS)
        return await outcome


async def _outcome(stream: Stream) -> str:
    """Wait for an answer or the end; return its status, or "closed"."""
    reader, writer = stream
    try:
        line = await reader.readline()
        return line.split(b" ")[1].decode() if line else "closed"
    except OSError:
        return "closed"
    finally:
        writer.transport.abort()


async def _main(told: dict[str, Any]) -> dict[str, int]:
    strangers = Strangers(port=told["port"], paths=told["paths"], sent=told["sent"], pause=told["pause"])
    numbers: dict[str, int] = told["numbers"]
    holding = [asyncio.create_task(strangers.hold(kind)) for kind, number in numbers.items() for _ in range(number)]
    await strangers.all_there(len(holding))
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for one in holding:
        one.cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*holding, return_exceptions=True)
    return dict(strangers.ended)


if __name__ == "__main__":
    os.nice(5)  # they would be on other machines
    ENDED = uvloop.run(_main(json.loads(sys.stdin.readline())))
    sys.stdout.write(json.dumps(ENDED) + "\n")
