"""The load, in a process of its own: `python -m tests.bench.loading`, told by one JSON object on standard input.

Every client sends its next review when the last one is answered, over a connection that is kept. Measuring starts when
all connections stand and have been used.
"""

import asyncio
import json
import os
import ssl
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import aiohttp

from tests.bench import cluster
from tests.bench.serving import DOORS, HOST


@dataclass(kw_only=True)
class Span:
    """When requests count: from the moment when every client has been answered once, for some seconds."""

    seconds: float
    all_ready: asyncio.Barrier
    began: float = 0.0

    async def start(self) -> None:
        await self.all_ready.wait()
        self.began = self.began or perf_counter()

    @property
    def end(self) -> float:
        return self.began + self.seconds


async def load(*, port: int, authority: str, pid: int, clients: int, seconds: float) -> dict[str, Any]:
    """Return the latencies of all requests, and the processor time that the server's process took; in seconds."""
    bodies = {door: [json.dumps(review).encode() for review in cluster.reviews(door)] for door in DOORS}
    span = Span(seconds=seconds, all_ready=asyncio.Barrier(clients + 1))
    connector = aiohttp.TCPConnector(limit=0, ssl=ssl.create_default_context(cadata=authority))
    headers = {"Content-Type": "application/json"}
    url = f"https://{HOST}:{port}"
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session, asyncio.TaskGroup() as group:
        tasks = [group.create_task(_client(session, url, bodies, number, span)) for number in range(clients)]
        used = group.create_task(_cpu_used(pid, span))
    latencies = sorted(latency for task in tasks for latency in task.result())
    return {"latencies": latencies, "cpu": used.result()}


async def _client(
    session: aiohttp.ClientSession, url: str, bodies: dict[str, list[bytes]], number: int, span: Span
) -> list[float]:
    latencies: list[float] = []
    for turn in count(number):
        door = DOORS[turn % 2]
        body = bodies[door][turn // 2 % len(bodies[door])]
        sent = perf_counter()
        async with session.post(f"{url}/{door}", data=body) as response:
            answer = await response.read()
        received = perf_counter()
        if response.status != 200 or b'"allowed":true' not in answer:
            raise RuntimeError(f"{door}: {response.status} {answer[:300]!r}")
        if turn == number:
            await span.start()
        elif received >= span.end:
            break
        else:
            latencies.append(received - sent)
    return latencies


async def _cpu_used(pid: int, span: Span) -> float:
    await span.start()
    before = _cpu(pid)
    await asyncio.sleep(span.end - perf_counter())
    return _cpu(pid) - before


def _cpu(pid: int) -> float:
    """Return the processor time that a process has used, from Linux' /proc (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(load(**json.load(sys.stdin)))))
