"""Benchmarks: `python -m tests.bench [NAME…] [options]`; JSON and a table of each. Names: see BENCHMARKS; or all."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console, Group
from rich.table import Table

from tests.bench import (
    admission,
    allocations,
    allocator,
    cel,
    cluster_requests,
    cluster_speed,
    creating,
    cycle,
    dashboard,
    flood,
    holding,
    hostile,
    ledger,
    measuring,
    node_needs,
    packing,
    packing_mixed,
    packing_partitions,
    packing_queue,
    packing_roots,
    planning,
    quota,
    recognition,
    rules,
    scale,
    scale_town,
    simulate,
    starting,
    webhook,
)

Shown = Table | Group


def _pure(module: ModuleType, rounds: str = "rounds") -> Callable[[argparse.Namespace], tuple[dict[str, Any], Shown]]:
    """Run a benchmark that has rounds and nothing else, whose number is that of an option."""

    def run(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
        result = module.measure(rounds=getattr(given, rounds))
        return result, module.table(result)

    return run


def _webhook(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = webhook.measure(clients=given.clients, rounds=given.passes, seconds=given.seconds, loop=given.loop)
    return result, webhook.table(result)


def _memory(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = webhook.measure_memory(reviews=given.reviews, loop=given.loop)
    return result, webhook.memory_table(result)


def _flood(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = flood.measure(seconds=given.flooded)
    return result, flood.table(result)


def _creating(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = creating.measure(rounds=given.passes, seconds=given.creating, pace=given.pace)
    return result, creating.table(result)


def _ledger(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = ledger.measure(rounds=given.passes, postings=given.postings)
    return result, ledger.table(result)


def _simulate(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = simulate.measure(jobs=given.jobs, nodes=given.towns, loads=given.loads)
    return result, simulate.table(result)


def _cluster(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = cluster_speed.measure(
        gangs=given.fit, queued=given.queued, paced=given.paced, rows=given.rows, ways=given.ways, rounds=given.passes
    )
    return result, Group(*cluster_speed.tables(result))


def _requests(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = cluster_requests.measure(gangs=given.counted, pods=given.pods)
    return result, cluster_requests.table(result)


def _scale(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    whole, part = scale_town.Size(), given.part
    size = scale_town.Size(
        nodes=round(whole.nodes * part),
        gangs=round(whole.gangs * part),
        running=round(whole.running * part),
        queues=round(whole.queues * part),
    )
    result = scale.measure(size=size, seconds=given.steady, rate=20.0, rounds=given.passes)
    return result, scale.table(result)


def _admission(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = admission.measure(nodes=given.nodes, gangs=given.gangs, rounds=given.passes)
    return result, _admission_table(result)


def _holding(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = holding.measure(jobs=given.waiting, patience=given.patience)
    return result, holding.table(result)


def _dashboard(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = dashboard.measure(queues=1_000, gangs=10_000, rounds=given.passes)
    return result, dashboard.table(result)


def _packing(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = packing.measure(draws=given.passes, scale=given.scaled, trace=given.trace)
    return result, packing.table(result)


def _packing_mixed(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = packing_mixed.measure(draws=given.passes)
    return result, packing_mixed.table(result)


def _packing_partitions(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = packing_partitions.measure(draws=given.passes)
    return result, packing_partitions.table(result)


def _packing_queue(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = packing_queue.measure(draws=given.passes)
    return result, packing_queue.table(result)


def _packing_roots(given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = packing_roots.measure(draws=given.passes)
    return result, packing_roots.table(result)


def _measuring(_given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = measuring.measure()
    return result, measuring.table(result)


def _hostile(_given: argparse.Namespace) -> tuple[dict[str, Any], Shown]:
    result = hostile.measure()
    return result, hostile.table(result)


BENCHMARKS: dict[str, Callable[[argparse.Namespace], tuple[dict[str, Any], Shown]]] = {
    "webhook": _webhook,
    "memory": _memory,
    "hostile": _hostile,
    "flood": _flood,
    "start": _pure(starting, "passes"),
    "creating": _creating,
    "admission": _admission,
    "allocations": _pure(allocations, "passes"),
    "measuring": _measuring,
    "cel": _pure(cel),
    "allocator": _pure(allocator),
    "planning": _pure(planning),
    "packing": _packing,
    "packing-mixed": _packing_mixed,
    "packing-partitions": _packing_partitions,
    "packing-queue": _packing_queue,
    "packing-roots": _packing_roots,
    "cycle": _pure(cycle, "passes"),
    "node-needs": _pure(node_needs),
    "quota": _pure(quota),
    "recognition": _pure(recognition),
    "rules": _pure(rules),
    "ledger": _ledger,
    "simulate": _simulate,
    "cluster": _cluster,
    "requests": _requests,
    "scale": _scale,
    "holding": _holding,
    "dashboard": _dashboard,
}


def main() -> None:
    given = _parser().parse_args()
    for name in given.benchmarks or BENCHMARKS:
        result, table = BENCHMARKS[name](given)
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
        help="webhook: rounds per server; cel, allocator, dashboard, node-needs, planning, quota, recognition, rules: "
        "rounds",
    )
    parser.add_argument("--seconds", type=float, default=1.5, help="webhook: length of a round")
    parser.add_argument("--clients", type=_numbers, default=(1, 50, 200, 500))
    parser.add_argument("--loop", choices=("asyncio", "uvloop"), default="uvloop", help="webhook, memory: event loop")
    parser.add_argument(
        "--reviews", type=int, default=60_000, help="memory: reviews to answer; a million takes minutes"
    )
    parser.add_argument("--flooded", type=float, default=30, help="flood: seconds of each kind")
    parser.add_argument("--creating", type=float, default=10, help="creating: seconds of a round")
    parser.add_argument("--pace", type=float, default=1.0, help="creating: pods a second of each of 50 clients")
    parser.add_argument("--nodes", type=int, default=25, help="admission: nodes with eight GPUs")
    parser.add_argument("--gangs", type=int, default=50, help="admission: Jobs of four one-GPU pods")
    parser.add_argument(
        "--passes",
        type=int,
        default=3,
        help="admission, allocations, cluster, creating, cycle, ledger: rounds that count; packing*: draws; start: "
        "starts; scale: failovers",
    )
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
    parser.add_argument("--counted", type=int, default=10, help="requests: Jobs of each size")
    parser.add_argument(
        "--pods", type=_numbers, default=cluster_requests.PODS, help="requests: sizes, such as 1,4,32 (default)"
    )
    parser.add_argument("--part", type=float, default=1.0, help="scale: of 5,000 nodes and 10,000 gangs")
    parser.add_argument("--steady", type=float, default=60, help="scale: seconds of 20 changes each")
    parser.add_argument("--scaled", type=int, default=1, help="packing: how many times the 121 nodes")
    parser.add_argument(
        "--trace", type=Path, help="packing: a folder with Alibaba's GPU trace of 2023, in place of worlds in its shape"
    )
    parser.add_argument("--waiting", type=int, default=500, help="holding: Jobs of four one-GPU pods that wait")
    parser.add_argument("--patience", type=float, default=1_800, help="holding: seconds until all of them have to")
    parser.add_argument("--jobs", type=int, default=10_000, help="simulate: jobs of the trace")
    parser.add_argument("--towns", type=int, default=1_200, help="simulate: nodes with eight GPUs")
    parser.add_argument(
        "--loads", type=lambda text: tuple(map(float, text.split(","))), default=(0.9, 1.2), help="simulate: of them"
    )
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _admission_table(result: dict[str, Any]) -> Table:
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
