"""The webhook beside an aiohttp server that does nothing: requests per second and latency at 1, 50 and 200 clients.

Machines differ and are busy with other things, so only ratios are judged: both servers run all the time, the load goes
to one after the other in short rounds, the order turns with every round, and the ratio is that of the medians. The
processor time that a server spends on a request is less noisy still, and does not hide behind the load generator.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

SERVERS = ("muster", "plain")
THROUGHPUT_GOAL = 0.8
P99_GOAL = 1.25


@dataclass
class Running:
    """A server in its process."""

    process: subprocess.Popen[str]
    port: int
    authority: str


@contextmanager
def running(name: str) -> Iterator[Running]:
    """Start a server and wait until it listens."""
    command = [sys.executable, "-m", "tests.bench.serving", name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = next((line for line in process.stdout if line.startswith("{")), "")
        yield Running(process=process, **json.loads(told))
        process.stdin.close()


def measure(*, clients: list[int], rounds: int, seconds: float) -> dict[str, Any]:
    """Run all rounds."""
    results: dict[int, dict[str, list[dict[str, float]]]] = {n: {name: [] for name in SERVERS} for n in clients}
    with running("muster") as muster, running("plain") as plain:
        servers = {"muster": muster, "plain": plain}
        for number in range(rounds):
            order = SERVERS if number % 2 else SERVERS[::-1]
            for n in clients:
                for name in order:
                    results[n][name].append(_one(servers[name], n, seconds))
    return {"seconds": seconds, "rounds": rounds, "clients": [_summary(n, results[n]) for n in clients]}


def _one(server: Running, clients: int, seconds: float) -> dict[str, float]:
    told = {
        "port": server.port,
        "authority": server.authority,
        "pid": server.process.pid,
        "clients": clients,
        "seconds": seconds,
    }
    command = [sys.executable, "-m", "tests.bench.loading"]
    done = subprocess.run(command, input=json.dumps(told), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    seen = json.loads(done.stdout)
    latencies = seen["latencies"]
    return {
        "requests_per_second": len(latencies) / seconds,
        "p50_ms": _percentile(latencies, 0.5) * 1e3,
        "p99_ms": _percentile(latencies, 0.99) * 1e3,
        "cpu_us": seen["cpu"] / len(latencies) * 1e6,
    }


def _percentile(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def _summary(clients: int, rounds: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    medians = {
        name: {number: median(one[number] for one in results) for number in results[0]}
        for name, results in rounds.items()
    }
    ratios = {number: medians["muster"][number] / medians["plain"][number] for number in medians["muster"]}
    met = ratios["requests_per_second"] >= THROUGHPUT_GOAL and ratios["p99_ms"] <= P99_GOAL
    return {"clients": clients, **medians, "ratio": ratios, "met": met, "rounds": rounds}
