"""The webhook beside an aiohttp server that does nothing: requests per second and latency for some numbers of clients.

Machines differ and are busy with other things, so only ratios are judged: both servers run all the time, the load goes
to one after the other in short rounds, the order turns with every round, and the ratio is that of the medians. The
processor time that a server spends on a request is less noisy still. Both run on the same event loop, with the same TLS
and as many processes. `loading` says how the load is made, and `load` in the results how much of a core it needed.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import linear_regression, median
from typing import Any

from rich.table import Table

from tests.bench.cluster import Shape

SERVERS = ("muster", "plain")
THROUGHPUT_GOAL = 0.8
P99_GOAL = 1.25

MIXES = ((Shape.NONE, 1), (Shape.ONE, 1), (Shape.RULED, 1), (Shape.ONE, 2))
"""Which pods are sent to how many workers."""

NUMBERS = {
    "requests_per_second": "requests/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "cpu_us": "server CPU µs",
    "load": "cores of the load",
}

GROWN_FROM = 0.2
"""The part of a long run after which memory is expected not to grow: by then all has been used once."""


@dataclass
class Running:
    """A server: its processes, and the port that they share."""

    pids: list[int]
    port: int
    authority: str


@contextmanager
def running(name: str, *, workers: int, loop: str) -> Iterator[Running]:
    """Start a server and wait until all of its processes listen."""
    with ExitStack() as stack:
        server = Running(pids=[], port=0, authority="")
        for _ in range(workers):
            command = [sys.executable, "-m", "tests.bench.serving", name, loop, str(server.port)]
            process = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            assert process.stdin is not None
            assert process.stdout is not None
            stack.callback(process.stdin.close)
            told = json.loads(next((line for line in process.stdout if line.startswith("{")), ""))
            server.pids.append(process.pid)
            server.port = told["port"]
            server.authority += told["authority"]
        yield server


def measure(*, clients: tuple[int, ...], rounds: int, seconds: float, loop: str) -> dict[str, Any]:
    """Run all rounds of all mixes."""
    rows = []
    for shape, workers in MIXES:
        results: dict[int, dict[str, list[dict[str, float]]]] = {n: {name: [] for name in SERVERS} for n in clients}
        with (
            running("muster", workers=workers, loop=loop) as muster,
            running("plain", workers=workers, loop=loop) as plain,
        ):
            servers = {"muster": muster, "plain": plain}
            for number in range(rounds):
                for n in clients:
                    for name in SERVERS if number % 2 else SERVERS[::-1]:
                        results[n][name].append(_one(servers[name], shape, clients=n, seconds=seconds))
        rows += [{"shape": shape, "workers": workers} | _summary(n, results[n]) for n in clients]
    return {"seconds": seconds, "rounds": rounds, "loop": loop, "rows": rows}


def _one(server: Running, shape: Shape, *, clients: int, seconds: float) -> dict[str, float]:
    seen = _load(server, shape, clients=clients, seconds=seconds)
    latencies = seen["latencies"]
    return {
        "requests_per_second": len(latencies) / seen["seconds"],
        "p50_ms": _percentile(latencies, 0.5) * 1e3,
        "p99_ms": _percentile(latencies, 0.99) * 1e3,
        "cpu_us": seen["cpu"] / len(latencies) * 1e6,
        "load": seen["own_cpu"] / seen["seconds"],
    }


def _load(
    server: Running, shape: Shape, *, clients: int, seconds: float | None = None, reviews: int | None = None
) -> dict[str, Any]:
    span = {"clients": clients, "seconds": seconds, "reviews": reviews, "pids": server.pids}
    told = {"port": server.port, "authority": server.authority, "shape": shape, **span}
    command = [sys.executable, "-m", "tests.bench.loading"]
    done = subprocess.run(command, input=json.dumps(told), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


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


def table(result: dict[str, Any]) -> Table:
    """Show the medians."""
    made = Table(
        title=f"Webhook beside a plain aiohttp server, both on {result['loop']}, medians of {result['rounds']} rounds"
    )
    for column in ("pods with", "workers", "clients", "", "muster", "plain", "ratio", ""):
        made.add_column(column, justify="right")
    for row in result["rows"]:
        head = [row["shape"], str(row["workers"]), str(row["clients"])]
        for number, title in NUMBERS.items():
            values = [row["muster"][number], row["plain"][number], row["ratio"][number]]
            goals = ("met" if row["met"] else "missed") if number == "p99_ms" else ""
            made.add_row(*head, title, f"{values[0]:.2f}", f"{values[1]:.2f}", f"{values[2]:.2f}", goals)
            head = ["", "", ""]
        made.add_section()
    return made


def measure_memory(*, reviews: int, loop: str, clients: int = 50) -> dict[str, Any]:
    """Have so many reviews of pods of different names answered, a third of each shape, and look at memory."""
    samples: list[tuple[int, int]] = []
    with running("muster", workers=1, loop=loop) as muster:
        for shape in Shape:
            seen = _load(muster, shape, clients=clients, reviews=reviews // len(Shape))
            before = samples[-1][0] if samples else 0
            samples += [(before + at, resident) for at, resident in seen["resident"]]
    late = [sample for sample in samples if sample[0] > GROWN_FROM * reviews]
    return {"reviews": reviews, "samples": samples, "slope": linear_regression(*zip(*late, strict=True)).slope * 1e3}


def memory_table(result: dict[str, Any]) -> Table:
    """Show how memory grew."""
    made = Table(title=f"Memory of the webhook over {result['reviews']:,} reviews")
    for column in ("MiB at first", "MiB at the end", "bytes per 1,000 reviews"):
        made.add_column(column, justify="right")
    first, last = (f"{result['samples'][at][1] / 2**20:.1f}" for at in (0, -1))
    made.add_row(first, last, f"{result['slope']:.0f}")
    return made
