"""Quota: the time of one decision on a charge, and of making the tree and the standing of all queues.

Goals (issue 5), in one process on one core: a decision on a gang charged on 8 meters in a tree of 1,000 queues, four
deep, with what it takes ≤ 200 µs, also where queues have shares and one keeps its quota, and while gangs are being
evicted, when all is asked twice, now and in the end; tree and standing of 1,000 queues, added up on all meters, ≤ 50
ms. Growth is the exponent of processor time over the number of queues: 1 is linear, 2 would be quadratic.
"""

import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from rich.table import Table

from admission.api.kubernetes.meta import Meta
from admission.api.muster.queues import FairSharing, Queue, Quota
from admission.api.values.names import MeterName, QueueName
from admission.quota import fair_share
from admission.quota.headroom import QueueUsage, Usage, larger
from admission.quota.queue_order import Tournament
from admission.quota.tree import Tree

METERS = tuple(MeterName(f"meter-{number}") for number in range(8))
SIZES = (1_000, 10_000)
DEPTHS = (4, 16)
CHARGE = dict.fromkeys(METERS, 1)
NOMINAL = 100
USED = 40
REPEATED = 200

GOALS = {
    "decide_us": 200.0,
    "ordered_us": 200.0,
    "decide_evicting_us": 200.0,
    "ordered_evicting_us": 200.0,
    "make_ms": 50.0,
}
"""For the first size and depth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gang:
    queue: QueueName
    key: str
    priority: int = 0
    queued_since: datetime = datetime(2026, 1, 1, tzinfo=UTC)


def measure(*, rounds: int) -> dict[str, Any]:
    """Return medians over rounds for every size and depth, growth exponents, and whether the goals are met."""
    rows = {(size, depth): _row(size, depth, rounds) for depth in DEPTHS for size in SIZES}
    first = rows[SIZES[0], DEPTHS[0]]
    return {
        "meters": len(METERS),
        "rounds": rounds,
        "rows": [{"queues": size, "depth": depth, **numbers} for (size, depth), numbers in rows.items()],
        "goals": GOALS,
        "met": {name: first[name] <= goal for name, goal in GOALS.items()},
        "growth": {
            f"{name}, depth {depth}": math.log(rows[SIZES[1], depth][name] / rows[SIZES[0], depth][name])
            / math.log(SIZES[1] / SIZES[0])
            for depth in DEPTHS
            for name in GOALS
        },
    }


def table(result: dict[str, Any]) -> Table:
    """Return what was measured, for people."""
    shown = Table(title=f"Quota on {result['meters']} meters, medians of {result['rounds']} rounds")
    names = [name for name in result["rows"][0] if name not in {"queues", "depth"}]
    for column in ("queues", "depth", *(name.replace("_", " ") for name in names)):
        shown.add_column(column, justify="right")
    for row in result["rows"]:
        shown.add_row(f"{row['queues']:,}", str(row["depth"]), *(f"{row[name]:.1f}" for name in names))
    shown.add_section()
    for name, goal in result["goals"].items():
        shown.add_row(name.replace("_", " "), f"≤ {goal:.0f}", "met" if result["met"][name] else "missed")
    for name, exponent in result["growth"].items():
        shown.add_row(name.replace("_", " "), f"n^{exponent:.2f}")
    return shown


def queues(count: int, depth: int) -> list[Queue]:
    """Return so many queues in a tree of this depth, every level as much wider than the one above as the others."""
    width = count ** (1 / depth)
    levels = [round(width**level) for level in range(1, depth)]
    levels.append(count - sum(levels))
    made: list[Queue] = []
    above: list[Queue] = []
    for size in levels:
        first = len(made)
        level = [_queue(first + at, above[at * len(above) // size].name if above else None) for at in range(size)]
        made += level
        above = level
    return made


def _queue(number: int, parent: QueueName | None) -> Queue:
    limit = NOMINAL if number % 3 else None
    return Queue(
        meta=Meta(name=f"queue-{number}"),
        parent=parent,
        quotas=tuple(
            Quota(meter=meter, nominal=NOMINAL, borrowing_limit=limit, lending_limit=limit) for meter in METERS
        ),
    )


def _row(size: int, depth: int, rounds: int) -> dict[str, float]:
    made = queues(size, depth)
    usage: Usage = {queue.name: dict.fromkeys(METERS, USED) for queue in made}
    queue_usage = _made(made, usage)
    shared = _made([replace(queue, fair_sharing=FairSharing()) for queue in made], usage)
    last = made[-1].name
    # The gang of one queue goes for one of another.
    then = {**usage, last: dict.fromkeys(METERS, USED - 1), made[-2].name: dict.fromkeys(METERS, USED + 1)}
    evicting = _made(made, usage, then)
    shared_evicting = _made([replace(queue, fair_sharing=FairSharing()) for queue in made], usage, then)
    full = dict.fromkeys(METERS, queue_usage.available(last, METERS[0]) + 1)
    return {
        "make_ms": _median(rounds, lambda: _made(made, usage)) * 1e3,
        "tree_ms": _median(rounds, lambda: Tree.build(made)) * 1e3,
        "copy_us": _median(rounds, queue_usage.copy) * 1e6,
        "decide_us": _median(rounds, lambda: _decisions(queue_usage, last)) / REPEATED * 1e6,
        "ordered_us": _median(rounds, lambda: _ordered(shared, usage)) / REPEATED * 1e6,
        "decide_evicting_us": _median(rounds, lambda: _decisions(evicting, last)) / REPEATED * 1e6,
        "ordered_evicting_us": _median(rounds, lambda: _ordered(shared_evicting, larger(usage, then))) / REPEATED * 1e6,
        "refuse_us": _median(rounds, lambda: _refusals(queue_usage, last, full)) / REPEATED * 1e6,
    }


def _made(made: list[Queue], usage: Usage, in_the_end: Usage | None = None) -> QueueUsage:
    """Return the standing, with every meter added up."""
    queue_usage = QueueUsage(Tree.build(made), usage, in_the_end)
    for meter in METERS:
        queue_usage.available(made[0].name, meter)
    return queue_usage


def _decisions(queue_usage: QueueUsage, queue: QueueName) -> None:
    """Decide on gangs that fit, take what they are charged, and give it back, so that the next one fits too."""
    for _ in range(REPEATED):
        if queue_usage.charge_fits(queue, CHARGE) is None:
            queue_usage.charge(queue, CHARGE)
            queue_usage.give_back(queue, CHARGE)


def _ordered(queue_usage: QueueUsage, usage: Usage) -> None:
    """Decide on as many gangs of the lowest queues in the order of shares, while a queue keeps its quota for a gang.

    Each is ranked among those beside it on every level, decided, taken, and counted for the order of the rest.
    """
    queue_usage = queue_usage.copy()
    names = queue_usage.tree.order[-REPEATED:]
    queue_usage.keep(names[0], dict.fromkeys(METERS, NOMINAL))
    gangs = [_Gang(queue=name, key=name) for name in names]
    rules = fair_share.Rules.from_tree(queue_usage.tree)
    shares = fair_share.Shares(queue_usage, usage, rules)
    contest = Tournament(shares, gangs, lambda gang: gang.queue, lambda _: CHARGE)
    for gang in contest:
        if queue_usage.charge_fits(gang.queue, CHARGE) is None:
            queue_usage.charge(gang.queue, CHARGE)
            contest.charge(gang.queue, CHARGE)


def _refusals(queue_usage: QueueUsage, queue: QueueName, charge: dict[MeterName, int]) -> None:
    """Decide on gangs that do not fit, each after a change, and say why."""
    for _ in range(REPEATED):
        queue_usage.charge(queue, CHARGE)
        queue_usage.give_back(queue, CHARGE)
        short = queue_usage.charge_fits(queue, charge)
        assert short is not None
        assert short.message


def _median(rounds: int, task: Callable[[], object]) -> float:
    """Return seconds of processor time."""

    def once() -> float:
        gc.collect()
        start = time.process_time()
        task()
        return time.process_time() - start

    task()
    return statistics.median(once() for _ in range(rounds))
