"""`muster simulate --arrivals`: replays a trace on a cluster, and prints its figures."""

from collections.abc import Sequence
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

from admission import heap
from admission.api.capacity import node_shapes
from admission.api.traces import Arrival
from admission.api.values import durations, quantities
from admission.api.values.reasons import Denial
from admission.cli import terminal
from admission.cli.simulate import charts, trace_reader
from admission.cli.terminal import Number
from admission.errors import FixError
from admission.simulation.replay import figures, player
from admission.simulation.replay.autoscaler import Delays
from admission.simulation.replay.cluster import ReplayCluster
from admission.simulation.replay.figures import Figures, NodeUse, Tally
from admission.simulation.replay.player import JobResult, Policy, Progress, ReplayResult

HOUR = timedelta(hours=1)

MOST_SHOWN = 20
"""The most jobs in the table of those that never start."""


def run(
    replay_cluster: ReplayCluster, path: str, policies: Sequence[Policy], delays: Delays | None
) -> list[ReplayResult]:
    """Replay the trace in a file under each policy. Raises FixError and BadInputError.

    delays: with which nodes of the shapes come and go; None if none does.
    """
    arrivals = trace_reader.read(path)
    trace_reader.check(path, arrivals, replay_cluster)
    for text in notes(replay_cluster):
        terminal.note(text)
    results: list[ReplayResult] = []
    with heap.frozen():
        for policy in policies:
            with terminal.progress(f"playing {policy}") as on_progress:
                results.append(_replay(replay_cluster, arrivals, policy, on_progress, delays))
    return results


def _replay(
    replay_cluster: ReplayCluster,
    arrivals: Sequence[Arrival],
    policy: Policy,
    on_progress: Progress,
    delays: Delays | None,
) -> ReplayResult:
    try:
        return player.replay(replay_cluster, arrivals, policy, on_progress, delays)
    except OverflowError as error:
        raise FixError(
            "--arrivals: the trace goes on beyond the year 9999, where time ends; make it shorter"
        ) from error


def notes(replay_cluster: ReplayCluster) -> list[str]:
    """Return the parts of the input that are ignored."""
    found: list[str] = []
    if replay_cluster.left_out:
        first_names = ", ".join(replay_cluster.left_out[:3]) + (
            " and others" if len(replay_cluster.left_out) > 3 else ""
        )
        found.append(f"gangs of the input that wait take no part: {first_names}")
    if any(queue.budgets for queue in replay_cluster.tree.queues.values()):
        found.append("budgets are not played: jobs are not held for want of one")
    if any(queue.max_runtime is not None for queue in replay_cluster.tree.queues.values()):
        found.append("maxRuntime is not played: jobs run for as long as the trace says")
    if any(replay_cluster.rules.sharing.half_lives.values()):
        found.append("half-lives are not played: fair shares are those of present use")
    return found


def as_json(results: Sequence[ReplayResult]) -> dict[str, Any]:
    """Return the documented JSON (docs/simulation.md)."""
    return {"jobs": len(results[0].jobs), "results": [_result(result) for result in results]}


def show(results: Sequence[ReplayResult]) -> None:
    """Print the tables, with the policies' figures side by side."""
    found = [(result, figures.figures(result)) for result in results]
    terminal.table(
        "Jobs",
        (
            *("queue", "policy"),
            *map(Number, ("jobs", "started", "wait mean", "p50", "p95", "p99", "longest", "slowdown")),
            *map(Number, ("device-hours", "served")),
        ),
        [
            *(
                (queue, result.policy, *_cells(figures.queues[queue]))
                for queue in found[0][1].queues
                for result, figures in found
            ),
            *(("all", result.policy, *_cells(figures.total)) for result, figures in found),
        ],
    )
    terminal.table(
        "Cluster",
        ("policy", "driver", *map(Number, ("devices", "utilisation", "to the end", "makespan", "fairness"))),
        [
            (
                *(result.policy, driver, count),
                *(_percent(figures.utilisation.get(driver)), _percent(figures.overall.get(driver))),
                *(durations.render(figures.makespan), f"{figures.fairness:.4f}"),
            )
            for result, figures in found
            for driver, count in _devices(result) or [("-", 0)]
        ],
    )
    _show_nodes(found)
    _show_meters(found)
    _show_reservations(found)
    _show_unstarted(results)


def _devices(result: ReplayResult) -> list[tuple[str, int]]:
    """Return how many devices are there all the time, of each driver that has any on a node at some time."""
    drivers = {*result.devices, *(driver for life in result.nodes for driver in life.devices)}
    return [(driver, result.devices[driver]) for driver in sorted(drivers)]


def _show_nodes(found: Sequence[tuple[ReplayResult, Figures]]) -> None:
    """Print the nodes that came, if there are any."""
    rows = [
        (
            *(use.shape, result.policy, use.count, use.most, f"{_node_hours(use):.1f}"),
            *(_percent(use.busy / use.time if use.time else None), _money(use.cost)),
        )
        for result, figures in found
        for use in figures.nodes
    ]
    if rows:
        headings = ("shape", "policy", *map(Number, ("nodes", "most", "node-hours", "in use", "price")))
        terminal.table("Nodes that came", headings, sorted(rows, key=lambda row: str(row[0])))


def _node_hours(use: NodeUse) -> float:
    return use.time / HOUR


def _money(cost: Fraction | None) -> str:
    """Return a price, rounded to two decimals."""
    return "-" if cost is None else node_shapes.render_price(Fraction(round(cost * 100), 100))


def draw(path: str, results: Sequence[ReplayResult]) -> None:
    """Write a chart of the plays. Raises FixError if that is not possible."""
    charts.write(Path(path), results)


def unstarted(result: ReplayResult) -> list[JobResult]:
    """Return the jobs that never start."""
    return [job for job in result.jobs if job.start is None]


def _show_meters(found: Sequence[tuple[ReplayResult, Figures]]) -> None:
    """Print what jobs took of meters that count what pods request of nodes, if there are such."""
    rows = [
        (queue, result.policy, meter, _hours(use.hours), _percent(use.of_quota))
        for queue in found[0][1].queues
        for result, figures in found
        for meter, use in figures.queues[queue].meters.items()
    ]
    if rows:
        terminal.table("Meters", ("queue", "policy", "meter", Number("hours"), Number("of quota")), rows)


def _show_reservations(found: Sequence[tuple[ReplayResult, Figures]]) -> None:
    """Print how reservations turned out, if some job exceeded its declared runtime or declared none."""
    nominations = [(result, figures.nominations) for result, figures in found]
    if any(counts.overran or counts.silent or counts.late for _, counts in nominations):
        terminal.table(
            "Reservations",
            ("policy", *map(Number, ("overran", "said nothing", "promised", "late", "delay mean", "longest"))),
            [
                (
                    *(result.policy, str(counts.overran), str(counts.silent), str(counts.nominated), str(counts.late)),
                    *(durations.render(timedelta(seconds=seconds)) for seconds in (counts.delay, counts.longest)),
                )
                for result, counts in nominations
            ],
        )


def _show_unstarted(results: Sequence[ReplayResult]) -> None:
    for result in results:
        jobs = unstarted(result)
        if jobs:
            terminal.table(
                f"Jobs that never start ({result.policy})",
                ("job", "queue", "decision", "why"),
                [(job.arrival.name, job.arrival.queue, _decision(job), _why(job)) for job in jobs[:MOST_SHOWN]],
            )
            if len(jobs) > MOST_SHOWN:
                terminal.note(f"{result.policy}: {len(jobs) - MOST_SHOWN} more never start")


def _cells(tally: Tally) -> tuple[str, ...]:
    wait = tally.wait
    times = (wait.mean, wait.p50, wait.p95, wait.p99, wait.longest)
    return (
        *(str(tally.jobs), str(tally.started)),
        *(durations.render(timedelta(seconds=seconds)) for seconds in times),
        *(f"{tally.slowdown:.2f}", f"{tally.hours:.1f}", _percent(tally.served)),
    )


def _hours(hours: float) -> str:
    """Return many hours as a quantity, so that those of memory are readable."""
    return quantities.render(round(hours)) if hours >= 1000 else f"{hours:.1f}"


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f} %"


def _decision(job: JobResult) -> str:
    return "Denied" if isinstance(job.why, Denial) else "Held"


def _why(job: JobResult) -> str:
    return f"{job.why.reason}: {job.why.message}" if job.why is not None else ""


def _result(result: ReplayResult) -> dict[str, Any]:
    found: Figures = figures.figures(result)
    return {
        "policy": str(result.policy),
        "makespanSeconds": found.makespan.total_seconds(),
        "fairness": found.fairness,
        "utilisation": {
            driver: {
                "devices": count,
                "whileJobsArrive": found.utilisation.get(driver),
                "toTheEnd": found.overall.get(driver),
            }
            for driver, count in _devices(result)
        },
        "all": _tally(found.total),
        "queues": {str(name): _tally(tally) for name, tally in found.queues.items()},
        "reservations": {
            "overran": found.nominations.overran,
            "silent": found.nominations.silent,
            "promised": found.nominations.nominated,
            "late": found.nominations.late,
            "delaySeconds": {"mean": found.nominations.delay, "longest": found.nominations.longest},
        },
        "nodes": [
            {
                "shape": use.shape,
                "count": use.count,
                "mostAtOnce": use.most,
                "nodeHours": _node_hours(use),
                "busyHours": use.busy / HOUR,
                "price": None if use.cost is None else _money(use.cost),
            }
            for use in found.nodes
        ],
        "unstarted": [
            {
                "name": job.arrival.name,
                "queue": job.arrival.queue,
                "decision": _decision(job),
                "reason": str(job.why.reason) if job.why is not None else None,
                "message": job.why.message if job.why is not None else "",
            }
            for job in unstarted(result)
        ],
    }


def _tally(tally: Tally) -> dict[str, Any]:
    wait = tally.wait
    return {
        "jobs": tally.jobs,
        "started": tally.started,
        "waitSeconds": {
            "mean": wait.mean,
            "p50": wait.p50,
            "p95": wait.p95,
            "p99": wait.p99,
            "longest": wait.longest,
        },
        "slowdown": tally.slowdown,
        "deviceHours": tally.hours,
        "served": tally.served,
        "meters": {meter: {"hours": use.hours, "ofQuota": use.of_quota} for meter, use in tally.meters.items()},
    }
