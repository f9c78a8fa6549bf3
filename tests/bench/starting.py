"""Cold start: `muster serve` from its execution until /readyz answers 200, before an API server of one page.

Each start has a database of its own, to be migrated, and no Secret of an earlier one. What the webhook's
role alone takes is what a further worker or a replica of it does.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from tests.integration import serving

GOAL = 2.0
ROLES = {"webhook and controller": ["webhook", "controller"], "webhook": ["webhook"]}
WORKERS = (1, 2)


def measure(*, rounds: int) -> dict[str, Any]:
    """Start it as often, in each way."""
    return asyncio.run(_measure(rounds))


async def _measure(rounds: int) -> dict[str, Any]:
    await _start(ROLES["webhook"], 1)  # so that all bytecode is there
    seconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, roles in ROLES.items():
            for workers in WORKERS:
                seconds.setdefault(f"{name}, workers: {workers}", []).append(await _start(roles, workers))
    return {"rounds": rounds, "seconds": seconds}


async def _start(roles: list[str], workers: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        database = {"url": f"sqlite:///{folder}/ledger.sqlite3"}
        began = time.perf_counter()
        async with serving.muster(Path(folder), roles=roles, ledger=database, workers=workers, linger=0) as muster:
            await serving.eventually(muster.is_ready, what="it is ready")
            return time.perf_counter() - began


def table(result: dict[str, Any]) -> Table:
    """Show the medians."""
    made = Table(title=f"Cold start of muster serve until it is ready, seconds, medians of {result['rounds']} starts")
    for column in ("roles", "least", "median", "goal"):
        made.add_column(column, justify="left" if column == "roles" else "right")
    for name, seconds in result["seconds"].items():
        made.add_row(name, f"{min(seconds):.2f}", f"{median(seconds):.2f}", f"≤ {GOAL:g}")
    return made
