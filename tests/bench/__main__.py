"""Benchmarks: `python -m tests.bench [--rounds N] [--seconds S] [--clients 1,50,200] [--out FILE]`."""

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench import webhook

NUMBERS = {"requests_per_second": "requests/s", "p50_ms": "p50 ms", "p99_ms": "p99 ms", "cpu_us": "server CPU µs"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=webhook.__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 50, 200])
    parser.add_argument("--out", type=Path, default=Path("bench-results/webhook.json"))
    given = parser.parse_args()

    result = webhook.measure(clients=given.clients, rounds=given.rounds, seconds=given.seconds)

    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    Console().print(_table(result))


def _table(result: dict[str, Any]) -> Table:
    table = Table(title=f"Webhook beside a plain aiohttp server, medians of {result['rounds']} rounds")
    for column in ("clients", "", "muster", "plain", "ratio"):
        table.add_column(column, justify="right")
    for row in result["clients"]:
        for number, title in NUMBERS.items():
            values = [row["muster"][number], row["plain"][number], row["ratio"][number]]
            table.add_row(str(row["clients"]), title, f"{values[0]:.1f}", f"{values[1]:.1f}", f"{values[2]:.2f}")
        table.add_row("", "goals met" if row["met"] else "goals missed", end_section=True)
    return table


if __name__ == "__main__":
    main()
