"""How fast a trace is played, and what Muster is worth on it beside a queue that counts.

The trace and the cluster are those of `trace`: jobs of 1 to 64 GPUs with heavy-tailed runtimes, 1,200 nodes of mixed
cards, eight equal queues. Goals (issue 8): 100,000 jobs in 300 s of processor time on one core; the mean wait at most
half of `fifo-count`'s, utilisation at least 5 points higher, no gang starves, fairness at least 0.95.
"""

import gc
import time
from typing import Any

from rich.table import Table

from admission.simulation.replay import cluster, figures as replay_figures, player
from admission.simulation.replay.player import Policy
from tests.bench import trace
from tests.bench.trace import Shape

GOAL_MS = 3.0
"""Processor milliseconds for each job: 100,000 of them in 300 s."""
STEPS = 50_000


def measure(*, jobs: int, nodes: int, loads: tuple[float, ...]) -> dict[str, Any]:
    """Return, for each load and policy, processor seconds and what the play comes to."""
    return {"jobs": jobs, "nodes": nodes, "plays": [row for load in loads for row in _plays(jobs, nodes, load)]}


def table(result: dict[str, Any]) -> Table:
    """Return what was measured, for people."""
    shown = Table(title=f"{result['jobs']:,} jobs on {result['nodes']:,} nodes of eight GPUs, processor time")
    for column in (
        "load",
        "policy",
        "s",
        "ms/job",
        "wait mean",
        "p50",
        "p95",
        "p99",
        "longest",
        "slowdown",
        "used",
        "fairness",
        "makespan h",
        "left",
    ):
        shown.add_column(column, justify="right")
    for row in result["plays"]:
        cells = [row[f"wait_{name}_s"] for name in ("mean", "p50", "p95", "p99", "longest")]
        shown.add_row(
            *(f"{row['load']:.2f}", row["policy"], f"{row['seconds']:.0f}", f"{row['ms_per_job']:.2f}"),
            *(f"{seconds:.0f}" for seconds in cells),
            *(f"{row['slowdown']:.2f}", f"{100 * row['utilisation']:.1f} %", f"{row['fairness']:.4f}"),
            *(f"{row['makespan_s'] / 3600:.1f}", str(row["unstarted"])),
        )
    return shown


def _plays(jobs: int, nodes: int, load: float) -> list[dict[str, Any]]:
    shape = Shape(jobs=jobs, nodes=nodes, load=load)
    town, arrivals = cluster.build_cluster(trace.town(shape), steps=STEPS), trace.arrivals(shape)
    gc.collect()
    gc.freeze()
    found: list[dict[str, Any]] = []
    for policy in Policy:
        start = time.process_time()
        play = player.replay(town, arrivals, policy)
        seconds = time.process_time() - start
        figures = replay_figures.figures(play)
        wait = figures.total.wait
        found.append(
            {
                "load": load,
                "policy": policy.value,
                "seconds": seconds,
                "ms_per_job": 1e3 * seconds / jobs,
                "goal_ms_per_job": GOAL_MS,
                "wait_mean_s": wait.mean,
                "wait_p50_s": wait.p50,
                "wait_p95_s": wait.p95,
                "wait_p99_s": wait.p99,
                "wait_longest_s": wait.longest,
                "slowdown": figures.total.slowdown,
                "utilisation": figures.utilisation[trace.DRIVER],
                "makespan_s": figures.makespan.total_seconds(),
                "fairness": figures.fairness,
                "unstarted": figures.total.jobs - figures.total.started,
            }
        )
    gc.unfreeze()
    return found
