"""Nodes that come and go in a trace: their limits, their lives, and that nobody starts before they came."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from fractions import Fraction
from typing import Any, NamedTuple
from unittest import mock

from hypothesis import given, settings, strategies as st

from admission.api.kubernetes.devices import DeviceId
from admission.api.traces import Arrival
from admission.api.values.names import NodeName
from admission.simulation import expand
from admission.simulation.expand import Expanded
from admission.simulation.replay import cluster, figures, player
from admission.simulation.replay.autoscaler import Delays
from admission.simulation.replay.cluster import Clock, Running
from admission.simulation.replay.player import Policy, ReplayResult
from tests import soaking
from tests.property.test_replay import CARDS, fixed, jobs, node, queue

Json = dict[str, Any]

DELAYS = st.builds(
    Delays,
    startup=st.integers(0, 4).map(lambda seconds: timedelta(seconds=seconds)),
    idle=st.integers(0, 4).map(lambda seconds: timedelta(seconds=seconds)),
)


def shape(name: str, gpus: int, card: str, *, most: int, price: str | None) -> Json:
    devices = [{"name": f"gpu-{at}", "attributes": {"card": {"string": card}}} for at in range(gpus)]
    spec: Json = {
        "maxCount": most,
        "matchLabels": {"type": name},
        "allocatable": {"cpu": "4", "pods": "10"},
        "resourceSlices": [{"driver": "gpu.example.com", "devices": devices}],
    }
    if price is not None:
        spec["pricePerHour"] = price
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeShape", "metadata": {"name": name}, "spec": spec}


@st.composite
def towns(draw: st.DrawFn) -> Expanded:
    objects = fixed()
    for number in range(draw(st.integers(0, 2))):
        here = node(f"node-{number}", draw(st.integers(1, 3)), draw(st.sampled_from(CARDS)), draw(st.integers(1, 4)))
        # It may be of a shape, and stays all the same.
        here[0]["metadata"]["labels"] = {"type": draw(st.sampled_from(["small", "none"]))}
        objects += here
    prices = st.sampled_from([None, "0", "1.10", "2.5"])
    for name, gpus in (("small", draw(st.integers(1, 2))), ("large", draw(st.integers(2, 4)))):
        card = draw(st.sampled_from(CARDS))
        objects.append(shape(name, gpus, card, most=draw(st.integers(0, 4)), price=draw(prices)))
    for name in ("x", "y"):
        spec: Json = {"parent": "all", "namespaceSelector": {}}
        spec["queueingStrategy"] = draw(st.sampled_from(["StrictFIFO", "BestEffortFIFO"]))
        spec["quotas"] = [{"meter": "gpus", "nominal": draw(st.sampled_from([0, 3, 6, 12]))}]
        spec["lending"] = draw(st.sampled_from(["WhenIdle", "Always"]))
        spec["preemption"] = {"withinQueue": draw(st.sampled_from(["Never", "LowerPriority"]))}
        objects.append(queue(name, **spec))
    cluster_state = expand.expand(objects)
    assert cluster_state.problems == ()
    return cluster_state


class Use(NamedTuple):
    """What a job has from its start on. until: when it ends, or was evicted."""

    start: timedelta
    nodes: frozenset[NodeName]
    devices: frozenset[DeviceId]
    until: timedelta


@contextmanager
def recorded() -> Iterator[list[Use]]:
    """Record what each job has, and that its nodes are there."""
    found: dict[int, Use] = {}
    start, evict = Clock.start, Clock.evict

    def starts(clock: Clock, *args: Any) -> Running:
        running = start(clock, *args)
        nodes = frozenset(name for name, _ in running.running_gang.requests)
        assert nodes <= clock.virtual_cluster.cluster.nodes.keys()
        devices = frozenset(one.device for _, uses in running.running_gang.uses for one in uses)
        found[id(running)] = Use(running.start, nodes, devices, running.end)
        kept.append(running)
        return running

    def evicts(clock: Clock, running: Running) -> None:
        found[id(running)] = found[id(running)]._replace(until=clock.now)
        evict(clock, running)

    kept: list[Running] = []
    uses: list[Use] = []
    with mock.patch.object(Clock, "start", starts), mock.patch.object(Clock, "evict", evicts):
        yield uses
    uses += found.values()


def most_at_once(spans: Iterable[tuple[timedelta, timedelta]]) -> int:
    spans = [*spans]
    return max((sum(start <= at < end for start, end in spans) for at, _ in spans), default=0)


def check_limits(place: Expanded, played: ReplayResult) -> None:
    for name, one in place.snapshot.shapes.items():
        lives = [life for life in played.nodes if life.shape == name]
        # A node of a moment, which goes when it comes, is there as well.
        spans = [(life.asked_at, max(life.gone_at or life.asked_at, life.asked_at)) for life in lives]
        assert most_at_once(spans) <= one.left(place.snapshot.nodes.values())


def check_lives(delays: Delays, played: ReplayResult, uses: list[Use]) -> None:
    """Check that each node comes on time and goes when it was idle for long enough, and its jobs are there between."""
    by_name: dict[NodeName, list[Any]] = {}
    for life in played.nodes:
        by_name.setdefault(life.name, []).append(life)
        assert life.gone_at is not None
        assert life.up_at == life.asked_at + delays.startup
    for name, lives in by_name.items():
        for life in lives:
            own = [one for one in uses if name in one.nodes and life.up_at <= one.start < life.gone_at]
            assert own
            assert life.gone_at == max(one.until for one in own) + delays.idle
            assert life.busy <= life.gone_at - life.up_at
        counted = sum(
            any(life.up_at <= one.start < life.gone_at for life in lives) for one in uses if name in one.nodes
        )
        assert counted == sum(name in one.nodes for one in uses)


def check_devices(uses: list[Use]) -> None:
    """Check that no device has two users at once."""
    for device in {device for one in uses for device in one.devices}:
        assert most_at_once((one.start, one.until) for one in uses if device in one.devices) <= 1


@settings(max_examples=soaking.examples(25), deadline=None)
@given(towns(), jobs(), DELAYS, st.sampled_from(Policy))
def test_nodes_come_within_their_limits_before_their_jobs_and_go_when_they_are_idle(
    place: Expanded, arrivals: tuple[Arrival, ...], delays: Delays, policy: Policy
) -> None:
    with recorded() as uses:
        played = player.replay(cluster.build_cluster(place, steps=5_000), arrivals, policy, delays=delays)

    check_limits(place, played)
    check_lives(delays, played, uses)
    check_devices(uses)
    for use in figures.figures(played).nodes:
        times = [life.gone_at - life.asked_at for life in played.nodes if life.shape == use.shape and life.gone_at]
        assert use.count == len(times)
        assert use.time == sum(times, timedelta())
        price = place.snapshot.shapes[use.shape].price
        paid = [(price or 0) * Fraction(time // timedelta(microseconds=1), 3_600_000_000) for time in times]
        assert use.cost == (None if price is None else sum(paid))
