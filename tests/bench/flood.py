"""`muster serve` while strangers hold connections and bodies, before an API server of one page.

1,000 connections are slow: half of them say nothing, half send a head drop by drop. 500 bodies of 8 MiB stall: those of
strangers, and those of somebody who knows the paths, since he may read the webhook configurations. Whoever is closed
comes again. Meanwhile the API server's own reviews go on, over connections that it keeps and new ones, and memory is
watched.
"""

import asyncio
import json
import ssl
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from rich.table import Table

from admission.webhook import path_segments
from tests.bench import cluster
from tests.bench.cluster_accounts import cpu_seconds
from tests.integration import serving
from tests.integration.serving import Muster

KINDS = {
    "nobody": {},
    "1,000 slow connections and 500 stalled bodies of strangers": {"silent": 500, "head": 500, "stranger": 500},
    "1,000 slow connections and 500 stalled bodies on known paths": {"silent": 500, "head": 500, "knowing": 500},
}
STRANGERS = (sys.executable, "-m", "tests.bench.strangers")

P99_GOAL_MS = 50.0
RESIDENT_GOAL_MIB = 400.0

KEPT = 8
"""Connections on which reviews are sent one after the other."""

PACE = 0.05
"""Seconds between two reviews of a connection."""

RENEWED = 10
"""After so many reviews a connection is closed and made anew, as when the API server has been idle."""

SENT = 1024 * 1024
"""Bytes of each body that are sent before it stalls."""

AGAIN_SECONDS = 1.0
"""When the API server asks again after 429, since the answer says so."""

TRIES = 5
"""The API server gives up after 5 s."""


@dataclass
class Seen:
    """The API server's reviews, each from its first try to its last, and the largest memory of the process."""

    seconds: list[float] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    tried_again: int = 0
    resident: int = 0
    cpu: float = 0.0

    def percentile_ms(self, part: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1e3

    @property
    def summary(self) -> dict[str, Any]:
        return {
            "reviews": len(self.seconds),
            "unanswered": self.unanswered,
            "tried_again": self.tried_again,
            "p50_ms": self.percentile_ms(0.5),
            "p99_ms": self.percentile_ms(0.99),
            "longest_ms": self.percentile_ms(1.0),
            "cpu_seconds": self.cpu,
            "resident_mib": self.resident / 2**20,
        }


def measure(*, seconds: float) -> dict[str, Any]:
    """Hold each kind for so long."""
    return {"seconds": seconds, "kinds": {name: asyncio.run(held(kind, seconds)) for name, kind in KINDS.items()}}


async def held(numbers: dict[str, int], seconds: float) -> dict[str, Any]:
    """Return what was seen while so many of each kind of stranger were there."""
    with tempfile.TemporaryDirectory() as folder:
        async with serving.muster(Path(folder), register=True, linger=0) as muster:
            await serving.eventually(muster.is_ready, what="it is ready")
            _register(muster)
            strangers = await _strangers(muster, numbers)
            try:
                seen = await _reviewed(muster, seconds)
                refused = await _refused(muster)
            finally:
                ended = await _end(strangers)
            return seen.summary | {"refused": refused, "ended": ended}


def _register(muster: Muster) -> None:
    """Do what a controller does, which runs apart."""
    [segment] = path_segments.read(muster.entries())
    client = {"url": f"https://127.0.0.1:{muster.port}/{segment.text}/mutate"}
    muster.api.put(serving.MUTATING, {"metadata": {"name": "muster"}, "webhooks": [{"clientConfig": client}]})


async def _strangers(muster: Muster, numbers: dict[str, int]) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*STRANGERS, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    paths = {"stranger": "/mutate", "knowing": muster.path("mutate")}
    told = {"port": muster.port, "paths": paths, "sent": SENT, "pause": 0.5, "numbers": numbers}
    process.stdin.write(json.dumps(told).encode() + b"\n")
    await process.stdout.readline()
    return process


async def _end(strangers: asyncio.subprocess.Process) -> dict[str, int]:
    out, _ = await strangers.communicate(b"")
    ended: dict[str, int] = json.loads(out or b"{}")
    return ended


async def _reviewed(muster: Muster, seconds: float) -> Seen:
    seen, until = Seen(), time.monotonic() + seconds
    bodies = [json.dumps(review).encode() for review in cluster.reviews("mutate")]
    context = muster.trusted()
    async with asyncio.TaskGroup() as tasks:
        for at in range(KEPT):
            tasks.create_task(_ask(muster, context, bodies[at:] + bodies[:at], seen, until))
        used = cpu_seconds(muster.process.pid)
        while time.monotonic() < until:
            seen.cpu = cpu_seconds(muster.process.pid) - used
            seen.resident = max(seen.resident, _resident(muster.process.pid))
            await asyncio.sleep(0.1)
    return seen


async def _ask(muster: Muster, context: ssl.SSLContext, bodies: list[bytes], seen: Seen, until: float) -> None:
    url = f"https://127.0.0.1:{muster.port}{muster.path('mutate')}?timeout=5s"
    at = 0
    while time.monotonic() < until:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            for _ in range(RENEWED):
                at += 1
                began = time.perf_counter()
                problem = await _review(session, url, bodies[at % len(bodies)], seen)
                seen.seconds.append(time.perf_counter() - began)
                if problem:
                    seen.unanswered.append(problem)
                await asyncio.sleep(PACE)


async def _review(session: aiohttp.ClientSession, url: str, body: bytes, seen: Seen) -> str:
    """Have a pod judged as the API server does; return why it was not."""
    problem = ""
    for _ in range(TRIES):
        try:
            headers = {"Content-Type": "application/json"}
            async with session.post(url, data=body, headers=headers) as response:
                answer = await response.json()
                if response.status == 200:
                    return "" if answer["response"]["allowed"] else str(answer)
                problem = str(answer)
                if "Retry-After" not in response.headers:
                    return problem
        except aiohttp.ClientError as error:
            return repr(error)
        seen.tried_again += 1
        await asyncio.sleep(AGAIN_SECONDS)
    return problem


async def _refused(muster: Muster) -> dict[str, int]:
    """Return what the webhook says that it refused, by reason."""
    _, page = await muster.get("/metrics")
    lines = [line for line in page.splitlines() if line.startswith("muster_webhook_refused_total{")]
    return {line.split('reason="')[1].split('"')[0]: int(float(line.rsplit(" ", 1)[1])) for line in lines}


def _resident(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def table(result: dict[str, Any]) -> Table:
    """Show latencies and memory."""
    made = Table(title=f"The API server's reviews while others hold connections, {result['seconds']:g} s each")
    for column in ("meanwhile", "reviews", "unanswered", "p50 ms", "p99 ms", "longest ms", "MiB", ""):
        made.add_column(column, justify="left" if column == "meanwhile" else "right")
    for name, seen in result["kinds"].items():
        met = seen["p99_ms"] < P99_GOAL_MS and seen["resident_mib"] < RESIDENT_GOAL_MIB and not seen["unanswered"]
        numbers = [f"{seen[key]:.1f}" for key in ("p50_ms", "p99_ms", "longest_ms")]
        counts = str(seen["reviews"]), str(len(seen["unanswered"]))
        made.add_row(name, *counts, *numbers, f"{seen['resident_mib']:.0f}", "met" if met else "missed")
    return made
