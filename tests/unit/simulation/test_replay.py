"""Traces played in virtual time: who starts when, what it comes to, and that it is what the controller's rules say."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from admission.api import traces
from admission.api.traces import Arrival, Row
from admission.api.values.names import MeterName, QueueName
from admission.api.values.reasons import DenyReason, HoldReason
from admission.simulation.replay import cluster, figures as replay_figures, player
from admission.simulation.replay.cluster import ReplayCluster
from admission.simulation.replay.player import Policy, ReplayResult
from tests.unit.simulation.simulated import Objects, expand, job, node, objects, teams


def town(*parts: Objects) -> ReplayCluster:
    cluster_state = expand(*parts)
    assert cluster_state.problems == ()
    return cluster.build_cluster(cluster_state, steps=5_000)


def trace(rows: Iterable[dict[str, Any]]) -> tuple[Arrival, ...]:
    read = traces.decode(Row(at, row) for at, row in enumerate(rows, 1))
    assert read.problems == ()
    return read.arrivals


def row(name: str, arrival: float, runtime: float, *, gpus: int = 1, **more: Any) -> dict[str, Any]:
    claims = [{"class": "gpu", "count": gpus}]
    return {"name": name, "queue": "team", "arrival": arrival, "runtime": runtime, "claims": claims, **more}


def play(place: ReplayCluster, *rows: dict[str, Any], policy: Policy = Policy.MUSTER) -> ReplayResult:
    return player.replay(place, trace(rows), policy)


def starts(found: ReplayResult) -> dict[str, float | None]:
    return {job.arrival.name: None if job.start is None else job.start.total_seconds() for job in found.jobs}


def why(found: ReplayResult, name: str) -> tuple[str, str]:
    (reason,) = (job.why for job in found.jobs if job.arrival.name == name)
    assert reason is not None
    return reason.reason, reason.message


def queue(name: str, nominal: int, **spec: Any) -> Objects:
    return [
        {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "quotas": [{"meter": "gpus", "nominal": nominal}], **spec},
        }
    ]


def sized(name: str, gpus: int, **allocatable: str) -> Objects:
    made, *rest = node(name, gpus)
    return [{**made, "status": {"allocatable": {"pods": "10", **allocatable}}}, *rest]


def strict(quota: int = 8) -> Objects:
    first, *rest = teams(quota)
    return [{**first, "spec": {**first["spec"], "queueingStrategy": "StrictFIFO"}}, *rest]


def test_jobs_start_when_they_arrive_or_when_what_they_need_is_free() -> None:
    place = town(teams(), node("one", 2))

    found = play(place, row("a", 0, 10), row("b", 1, 10), row("c", 2, 10), row("d", 3, 5))

    assert starts(found) == {"a": 0, "b": 1, "c": 10, "d": 11}
    assert [moment.waiting for moment in found.samples] == [0, 0, 1, 2, 1, 0, 0, 0]
    assert [moment.used["gpu.example.com"] for moment in found.samples] == [1, 2, 2, 2, 2, 2, 1, 0]


def test_a_gang_starts_with_all_of_its_pods_or_not_at_all() -> None:
    place = town(teams(), node("one", 2), node("two", 2))

    found = play(place, row("a", 0, 10), row("gang", 1, 10, pods=2, gpus=2))

    assert starts(found) == {"a": 0, "gang": 10}


def test_a_small_job_passes_a_waiting_job_but_not_in_a_strict_queue() -> None:
    rows = row("a", 0, 10), row("large", 1, 10, gpus=2), row("small", 2, 3)

    assert starts(play(town(teams(), node("one", 2)), *rows)) == {"a": 0, "large": 10, "small": 2}
    assert starts(play(town(strict(), node("one", 2)), *rows)) == {"a": 0, "large": 10, "small": 20}


def test_nodes_are_filled_so_that_few_devices_lack_what_jobs_request_beside_them() -> None:
    nodes = [*sized("small", 2, cpu="16"), *sized("starved", 3, cpu="2")]
    jobs = [
        row("lean", 0, 10, requests={"cpu": "1"}),
        row("rich-0", 0, 10, requests={"cpu": "8"}),
        row("rich-1", 0, 10, requests={"cpu": "8"}),
    ]
    cluster_state = expand(teams(), nodes)

    starting = {
        strands_least: starts(
            play(cluster.build_cluster(cluster_state, steps=5_000, strands_least=strands_least), *jobs)
        )
        for strands_least in (True, False)
    }

    assert starting[True] == {"lean": 0, "rich-0": 0, "rich-1": 0}
    assert starting[False] == {"lean": 0, "rich-0": 0, "rich-1": 10}


def test_priority_goes_before_arrival() -> None:
    place = town(teams(), node("one", 1))

    found = play(place, row("a", 0, 10), row("low", 1, 10), row("high", 2, 10, priority=5))

    assert starts(found) == {"a": 0, "low": 20, "high": 10}


@pytest.mark.parametrize("policy", Policy)
def test_a_quota_is_used_from_start_to_end_and_given_back(policy: Policy) -> None:
    place = town(teams(quota=1), node("one", 4))

    assert starts(play(place, row("a", 0, 10), row("b", 1, 10), policy=policy)) == {"a": 0, "b": 10}


def test_under_fair_sharing_the_queue_that_uses_less_is_next() -> None:
    shared = {"fairSharing": {"weight": 1}}
    place = town(teams(0), queue("x", 1, parent="team", **shared), queue("y", 1, parent="team", **shared), node("n", 2))
    rows = [row("x0", 0, 10, queue="x"), *(row(f"x{at}", 0, 30, queue="x") for at in (1, 2))]

    found = starts(play(place, *rows, row("y", 1, 10, queue="y")))

    assert found == {"x0": 0, "x1": 0, "x2": 20, "y": 10}


@pytest.mark.parametrize(("shared", "start"), [({"fairSharing": {"weight": 1}}, 30), ({}, 10)])
def test_under_fair_sharing_reserved_devices_go_to_the_queue_that_uses_less(shared: dict[str, Any], start: int) -> None:
    queues = (queue(name, 0, parent="team", **shared) for name in ("x", "y"))
    place = town(teams(8), *queues, node("n", 4))
    rows = [row("long", 0, 1000, gpus=2, queue="x"), row("large", 1, 10, gpus=2, queue="x")]
    small = [row(f"y{at}", 0 if at < 2 else 2, 10, queue="y") for at in range(6)]

    assert starts(play(place, *rows, *small))["large"] == start


def test_running_gangs_of_the_input_keep_their_devices_to_the_end_of_a_replay() -> None:
    template, made = job("runs")
    spec = {**made["spec"]["template"]["spec"], "nodeName": "one"}
    labels = {"muster.dev/queue": "team"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "runs-0", "labels": labels}, "spec": spec}
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "one", "device": "gpu-0"}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "runs-0-gpu"},
        "spec": template["spec"]["spec"],
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    pod["status"] = {
        "phase": "Running",
        "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "runs-0-gpu"}],
    }
    place = town(teams(), node("one", 2), [template, pod, claim])

    found = play(place, row("a", 0, 10), row("b", 0, 10), row("large", 0, 1, gpus=2))

    assert place.usage == {"team": {"gpus": 1}}
    assert starts(found) == {"a": 0, "b": 10, "large": None}
    assert why(found, "large")[0] == HoldReason.DEVICES_BUSY


def test_pending_gangs_of_the_input_take_no_part_in_a_replay_and_are_named() -> None:
    place = town(teams(), node("one", 1), job("waits"))

    assert place.left_out == ("default/waits",)
    assert starts(play(place, row("a", 0, 10))) == {"a": 0}


def test_jobs_that_never_start_say_why() -> None:
    place = town(teams(), node("one", 2))

    found = play(
        place, row("large", 0, 10, gpus=4), row("a", 1, 1), row("dear", 2, 1, gpus=9), row("large2", 3, 1, gpus=4)
    )

    assert starts(found) == {"large": None, "a": 1, "dear": None, "large2": None}
    assert why(found, "large")[0] == HoldReason.NO_FEASIBLE_PLACEMENT
    assert why(found, "large2") == why(found, "large")
    assert why(found, "dear")[0] == HoldReason.QUOTA_EXCEEDED


def test_a_class_that_no_meter_counts_is_denied_and_keeps_nobody_waiting() -> None:
    other = objects("""
        apiVersion: resource.k8s.io/v1
        kind: DeviceClass
        metadata: {name: other}
        spec: {}
        """)
    place = town(strict(), other, node("one", 1))
    unmetered = row("no", 0, 10, claims=[{"class": "other"}])

    for policy in Policy:
        found = play(place, unmetered, row("a", 0, 10), policy=policy)

        assert starts(found) == {"no": None, "a": 0}
        assert why(found, "no")[0] == DenyReason.UNMETERED_CLASS


def test_a_job_that_runs_longer_than_declared_delays_the_head_which_may_be_passed_again() -> None:
    """`large` is promised the end that `a` declares; at that time it is reckoned anew, and `short` fits before that."""
    rows = row("a", 0, 100, gpus=2, declared=10), row("large", 1, 10, gpus=4), row("short", 2, 30)

    found = play(town(teams(), node("one", 4)), *rows)

    assert starts(found) == {"a": 0, "large": 100, "short": 10}
    nominations = replay_figures.figures(found).nominations
    assert (nominations.overran, nominations.nominated, nominations.late, nominations.longest) == (1, 1, 1, 90.0)


def test_a_job_that_runs_shorter_than_declared_keeps_the_head_from_being_late() -> None:
    rows = row("a", 0, 20, gpus=2, declared=50), row("b", 0, 30, declared=30), row("large", 1, 10, gpus=4)

    found = play(town(teams(), node("one", 4)), *rows, row("long", 2, 48), row("later", 21, 8))

    assert starts(found) == {"a": 0, "b": 0, "large": 50, "long": 2, "later": 21}
    assert replay_figures.figures(found).nominations.late == 0


SOONER = {
    "soon after": ((5, 1000), 50, 2, (20, 100)),
    "while it is late": ((75, 50), 90, 55, (76, 30)),
}
"""When `a` ends and says that it does, when `b` does, and when `long` and `short` come, and for how long that runs."""


@pytest.mark.parametrize(("a", "b", "long", "short"), SOONER.values(), ids=SOONER)
def test_a_job_that_ends_earlier_than_expected_brings_the_head_forward(
    a: tuple[int, int], b: int, long: int, short: tuple[int, int]
) -> None:
    """`long` has something reserved for `large` at once; nobody ends again before `short` asks for what is free."""
    rows = row("a", 0, a[0], declared=a[1]), row("b", 0, b), row("large", 1, 10, gpus=3), row("long", long, 5000)

    found = starts(play(town(teams(), node("one", 3)), *rows, row("short", *short)))

    assert (found["large"], found["short"]) == (b, b + 10)


def test_a_job_that_runs_longer_than_its_queue_allows_is_late() -> None:
    first, *rest = teams()
    bounded = [{**first, "spec": {**first["spec"], "maxRuntime": "10s"}}, *rest]
    rows = row("a", 0, 100), row("b", 0, 100), row("large", 1, 10, gpus=3), row("short", 2, 60)

    assert starts(play(town(bounded, node("one", 3)), *rows)) == {"a": 0, "b": 0, "large": 100, "short": 10}


def test_nothing_is_reserved_behind_an_infeasible_head_of_a_strict_queue() -> None:
    strictly = {"queueingStrategy": "StrictFIFO", "preemption": {"withinQueue": "LowerPriority"}}
    place = town(teams(0), queue("x", 1, **strictly), queue("y", 4), node("one", 1))
    never = row("never", 2, 10, gpus=5, queue="x", priority=5)

    found = play(
        place, row("a", 0, 50, queue="y", declared=1), row("b", 1, 100, queue="x"), never, row("c", 3, 100, queue="y")
    )

    assert starts(found) == {"a": 0, "b": None, "never": None, "c": 50}


def test_the_end_of_a_backfilled_job_that_overruns_is_estimated_again() -> None:
    """`late` has what was reserved for `large`, so `endless` must leave it what has become free instead."""
    place = town(teams(), node("one", 2), node("three", 2), node("two", 1))
    known = row("a", 0, 6, gpus=2, declared=8), row("b", 0, 8), row("c", 0, 7, gpus=2, declared="none")
    large, endless = row("large", 1, 10, pods=3), row("endless", 5, 90, gpus=2, declared="none")

    found = play(place, *known, large, endless, row("late", 6, 6, gpus=2, declared=1))

    assert starts(found) == {"a": 0, "b": 0, "c": 0, "large": 8, "endless": 12, "late": 6}


def test_a_job_without_a_declared_runtime_is_endless_unless_its_queue_has_a_default() -> None:
    first, *rest = teams()
    rows = row("a", 0, 10, gpus=2), row("large", 1, 10, gpus=4), row("short", 2, 5, declared="none")
    defaulted = [{**first, "spec": {**first["spec"], "defaultRuntime": "8s"}}, *rest]

    assert starts(play(town(teams(), node("one", 4)), *rows)) == {"a": 0, "large": 10, "short": 20}
    assert starts(play(town(defaulted, node("one", 4)), *rows)) == {"a": 0, "large": 10, "short": 2}


def test_a_queue_that_counts_holds_quota_for_devices_that_are_not_there() -> None:
    """Two devices are free when `pair` comes, but on two nodes: where it counts, `c` waits though it has a place."""
    place = town(teams(quota=4), node("one", 2), node("two", 2))
    rows = row("a", 0, 30), row("a-short", 0, 5), row("b", 0, 100), row("pair", 6, 10, gpus=2), row("c", 7, 10)

    counted, decided = play(place, *rows, policy=Policy.FIFO_COUNT), play(place, *rows)

    assert starts(decided)["pair"] == starts(counted)["pair"] == 30
    assert starts(decided)["c"] == 7
    assert starts(counted)["c"] == 30


def test_a_counting_fifo_queue_lets_no_job_pass_the_head() -> None:
    place = town(teams(quota=2), node("one", 4))
    rows = row("a", 0, 10), row("large", 1, 10, gpus=2), row("small", 2, 3)

    assert starts(play(place, *rows, policy=Policy.FIFO_COUNT)) == {"a": 0, "large": 10, "small": 20}
    assert starts(play(place, *rows)) == {"a": 0, "large": 10, "small": 2}


def test_a_replay_does_not_depend_on_the_order_of_the_lines() -> None:
    place = town(teams(), node("one", 4), node("two", 4))
    jobs = trace(row(f"j{at}", at % 7, 1 + at % 5, gpus=1 + at % 3, pods=1 + at % 2) for at in range(30))

    assert player.replay(place, jobs, Policy.MUSTER) == player.replay(place, jobs[::-1], Policy.MUSTER)


# What it comes to.


def test_a_replay_has_the_expected_figures() -> None:
    place = town(teams(), node("one", 2))
    found = play(place, row("a", 0, 40, gpus=2), row("b", 10, 40), row("c", 30, 10), row("d", 100, 1))

    figures = replay_figures.figures(found)

    whole = figures.total
    assert (whole.jobs, whole.started) == (4, 4)
    assert (whole.wait.mean, whole.wait.p50, whole.wait.p95, whole.wait.longest) == (10.0, 0.0, 30.0, 30.0)
    assert whole.slowdown == pytest.approx((1 + 70 / 40 + 20 / 10 + 1) / 4)
    assert figures.makespan == timedelta(seconds=101)
    assert figures.utilisation["gpu.example.com"] == pytest.approx((80 + 40 + 10) / 200)
    assert figures.overall["gpu.example.com"] == pytest.approx((80 + 40 + 10 + 1) / 202)
    assert whole.hours == pytest.approx(131 / 3600)
    assert whole.served == 1.0


def test_fairness_is_computed_from_the_served_share_of_each_queue() -> None:
    place = town(teams(0), queue("x", 2), queue("y", 1), node("one", 3))
    rows = [row(f"{name}{at}", 0, 10, queue=name) for name in "xy" for at in range(2)]

    figures = replay_figures.figures(play(place, *rows, row("last", 10, 1, queue="x")))

    assert figures.queues["x"].served == 1.0  # type: ignore[index]
    assert figures.queues["y"].served == 0.5  # type: ignore[index]
    assert figures.fairness == pytest.approx(1.5**2 / (2 * 1.25))


def test_a_queue_that_asks_for_no_devices_says_nothing_of_fairness() -> None:
    place = town(teams(0), queue("x", 1), queue("y", 1), queue("z", 1), node("one", 2))
    rows = [row(f"{name}{at}", 0, 10, queue=name) for name in "xy" for at in range(2)]

    figures = replay_figures.figures(play(place, *rows, row("z", 0, 10, queue="z", claims=[]), row("last", 10, 1)))

    assert {str(name): tally.served for name, tally in figures.queues.items()} == {
        "team": None,
        "x": 0.5,
        "y": 0.5,
        "z": None,
    }
    assert figures.fairness == 1.0


def test_jobs_without_devices_have_figures_of_their_pods_and_of_the_meters_that_count_what_these_request() -> None:
    meter = objects("""
    apiVersion: muster.dev/v1alpha1
    kind: Meter
    metadata: {name: cpu}
    spec: {resources: [{name: cpu}]}
    """)
    queues = [
        {**one, "spec": {**one["spec"], "quotas": [{"meter": "cpu", "nominal": nominal}]}}
        for name, nominal in (("x", "2"), ("y", "1"))
        for one in queue(name, 0)
    ]
    place = town(teams(0), meter, queues, node("one", 0))
    requests: dict[str, Any] = {"claims": [], "requests": {"cpu": "1"}}
    rows = [row(f"{name}{at}", 0, 10, queue=name, **requests) for name in "xy" for at in range(2)]

    found = play(place, *rows, row("last", 10, 1, queue="x", **requests))

    figures = replay_figures.figures(found)
    assert {str(name): tally.served for name, tally in figures.queues.items()} == {"x": 1.0, "y": 0.5}
    assert figures.fairness == pytest.approx(1.5**2 / (2 * 1.25))
    x, y = (figures.queues[QueueName(name)].meters[MeterName("cpu")] for name in "xy")
    assert (x.of_quota, y.of_quota, figures.total.meters[MeterName("cpu")].of_quota) == (1.0, 1.0, 1.0)
    assert x.hours == pytest.approx(21 / 3600)
    assert y.hours == pytest.approx(20 / 3600)


def test_a_device_that_several_share_is_in_use_once() -> None:
    slices = objects("""
    apiVersion: resource.k8s.io/v1
    kind: ResourceSlice
    metadata: {name: one}
    spec:
      driver: gpu.example.com
      nodeName: one
      pool: {name: one, generation: 1, resourceSliceCount: 1}
      devices:
      - {name: gpu-0, allowMultipleAllocations: true, capacity: {memory: {value: 80Gi}}}
      - {name: gpu-1}
    """)
    selectors = [{"cel": {"expression": "device.allowMultipleAllocations == true"}}]
    exactly = {"deviceClassName": "gpu", "selectors": selectors, "capacity": {"requests": {"memory": "10Gi"}}}
    share = [{"devices": {"requests": [{"name": "part", "exactly": exactly}]}}]
    place = town(teams(), node("one", 0)[:1], slices)

    found = play(place, row("a", 0, 10, claims=share), row("b", 5, 10, claims=share), row("c", 20, 1, claims=share))

    assert starts(found) == {"a": 0, "b": 5, "c": 20}
    assert [moment.used["gpu.example.com"] for moment in found.samples] == [1, 1, 1, 0, 1, 0]
    assert replay_figures.figures(found).utilisation == {"gpu.example.com": pytest.approx(15 / 40)}


def test_percentiles_are_values_of_some_job() -> None:
    values = [float(at) for at in range(1, 201)]

    assert [replay_figures.nearest_rank(values, percent) for percent in (50, 95, 99, 100)] == [
        100.0,
        190.0,
        198.0,
        200.0,
    ]
    assert replay_figures.nearest_rank([], 50) == 0.0
    assert replay_figures.nearest_rank([7.0], 1) == 7.0


def test_a_trace_job_that_needs_what_the_cluster_lacks_is_reported_with_its_line() -> None:
    place = town(
        teams(),
        objects("""
        apiVersion: muster.dev/v1alpha1
        kind: Queue
        metadata: {name: above}
        spec: {}
        """),
    )
    rows = (
        *(row("a", 0, 1), row("b", 0, 1, queue="other"), row("c", 0, 1, queue="other"), row("d", 0, 1, queue="above")),
        row("e", 0, 1, claims=[{"class": "none"}]),
        row("f", 0, 1, claims=[{"class": "gpu", "selectors": ["device.("]}]),
    )

    found = [f"{line}: {problem}" for line, problem in cluster.name_problems(place, trace(rows))]

    assert found[0].startswith("2: queue: there is no Queue other")
    assert found[1].startswith("4: queue: nobody enters queue above directly")
    assert found[2].startswith("5: claims[0].class: there is no DeviceClass none")
    assert found[3].startswith("6: claims[0].selectors: 'device.(' is not CEL that Kubernetes takes")
    assert len(found) == 4
