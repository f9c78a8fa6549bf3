"""Benchmarks: `python -m tests.bench [NAME…] [options]`; JSON and a table of each. Names: see BENCHMARKS; or all."""

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table

from tests.bench import admission, allocator, cel, cluster_speed, cycle, ledger, planning, quota, rules, webhook

NUMBERS = {"requests_per_second": "requests/s", "p50_ms": "p50 ms", "p99_ms": "p99 ms", "cpu_us": "server CPU µs"}
BENCHMARKS = ("webhook", "admission", "cel", "allocator", "planning", "cycle", "quota", "rules", "ledger", "cluster")

PURE = {"planning": planning, "quota": quota}
"""Those that have rounds and nothing else."""


def main() -> None:
    given = _parser().parse_args()
    table: Table | Group
    for name in given.benchmarks or BENCHMARKS:
        if name == "webhook":
            result = webhook.measure(clients=given.clients, rounds=given.rounds, seconds=given.seconds)
            table = _webhook(result)
        elif name == "cel":
            result = cel.measure(rounds=given.rounds)
            table = cel.table(result)
        elif name == "allocator":
            result = allocator.measure(rounds=given.rounds)
            table = allocator.table(result)
        elif name in PURE:
            result = PURE[name].measure(rounds=given.rounds)
            table = PURE[name].table(result)
        elif name == "cycle":
            result = cycle.measure(rounds=given.passes)
            table = cycle.table(result)
        elif name == "rules":
            result = rules.measure(rounds=given.rounds)
            table = rules.table(result)
        elif name == "ledger":
            result = ledger.measure(rounds=given.passes, postings=given.postings)
            table = ledger.table(result)
        elif name == "cluster":
            result = cluster_speed.measure(
                gangs=given.fit, queued=given.queued, paced=given.paced, rows=given.rows, ways=given.ways
            )
            table = Group(*cluster_speed.tables(result))
        else:
            result = admission.measure(nodes=given.nodes, gangs=given.gangs, rounds=given.passes)
            table = _admission(result)
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        Console().print(table)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("benchmarks", nargs="*", choices=BENCHMARKS, default=[])
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    parser.add_argument(
        "--rounds",
        type=int,
        default=9,
        help="webhook: rounds per server; cel, allocator, planning, quota, rules: rounds",
    )
    parser.add_argument("--seconds", type=float, default=1.5, help="webhook: length of a round")
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 50, 200])
    parser.add_argument("--nodes", type=int, default=25, help="admission: nodes with eight GPUs")
    parser.add_argument("--gangs", type=int, default=50, help="admission: Jobs of four one-GPU pods")
    parser.add_argument("--passes", type=int, default=3, help="admission, cycle, ledger: rounds that count, each way")
    parser.add_argument("--postings", type=int, default=5_000_000, help="ledger: in the books that are verified")
    parser.add_argument("--fit", type=int, default=200, help="cluster: Jobs of four one-GPU pods that fill the fleet")
    parser.add_argument("--queued", type=int, default=1_000, help="cluster: Jobs that queue for it")
    parser.add_argument("--paced", type=float, default=30, help="cluster: seconds of two Jobs each")
    parser.add_argument(
        "--rows", type=_words, default=cluster_speed.ROWS, help="cluster: of " + ",".join(cluster_speed.ROWS)
    )
    parser.add_argument(
        "--ways", type=_words, default=cluster_speed.WAYS, help="cluster: of " + ",".join(cluster_speed.WAYS)
    )
    return parser


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _webhook(result: dict[str, Any]) -> Table:
    table = Table(title=f"Webhook beside a plain aiohttp server, medians of {result['rounds']} rounds")
    for column in ("clients", "", "muster", "plain", "ratio"):
        table.add_column(column, justify="right")
    for row in result["clients"]:
        for number, title in NUMBERS.items():
            values = [row["muster"][number], row["plain"][number], row["ratio"][number]]
            table.add_row(str(row["clients"]), title, f"{values[0]:.1f}", f"{values[1]:.1f}", f"{values[2]:.2f}")
        table.add_row("", "goals met" if row["met"] else "goals missed", end_section=True)
    return table


def _admission(result: dict[str, Any]) -> Table:
    table = Table(title=f"{result['pods']} pods in gangs of four on {result['nodes']} nodes, created to bound, medians")
    for column in ("", "with Muster", "without", "ratio"):
        table.add_column(column, justify="right")
    speeds = result["pods_per_second"]
    ratio = f"{result['ratio']:.2f}"
    table.add_row("pods/s", f"{speeds['muster']:.1f}", f"{speeds['plain']:.1f}", ratio)
    table.add_row("resident MiB", f"{result['muster_resident_mib']:.0f}", "", "")
    return table


if __name__ == "__main__":
    main()
