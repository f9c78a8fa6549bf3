"""A law of preemption beside backfill: nobody is evicted for a gang where that would delay one ahead of it."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from hypothesis import event, given, strategies as st

from admission.api import traces
from admission.api.traces import Arrival, Row
from admission.quota import queue_order
from admission.scheduling.checks.chain import Grant
from admission.scheduling.preemption.targets import PreemptionTargets
from admission.simulation import expand
from admission.simulation.replay import cluster, preempt
from admission.simulation.replay.arrivals import Waiting
from admission.simulation.replay.backlog import ReplayQueue
from admission.simulation.replay.cluster import Clock, ReplayCluster, Running
from tests.property.test_replay import CARDS, _claim, fixed, node, queue

QUEUES = ("x", "y", "y")
PRIORITIES = {"x": (5, 5, 9), "y": (0, 0, 3, 7)}
"""Heads are ahead in one queue, and others are evicted in the other."""
WITHIN = {"withinQueue": "LowerPriority"}
PREEMPTION: dict[str, list[dict[str, str]]] = {"x": [{}, {}, WITHIN], "y": [WITHIN, {**WITHIN, "reclaim": "Any"}]}


@st.composite
def towns(draw: st.DrawFn) -> ReplayCluster:
    objects = fixed()
    for number in range(draw(st.integers(1, 3))):
        card = draw(st.sampled_from(CARDS))
        objects += node(f"node-{number}", draw(st.integers(1, 4)), card, draw(st.integers(2, 6)))
    objects.append(queue("top", quotas=[{"meter": "gpus", "nominal": 0}]))
    for name, preemptions in PREEMPTION.items():
        quotas = [{"meter": "gpus", "nominal": draw(st.integers(2, 8))}]
        preemption = draw(st.sampled_from(preemptions))
        spec: dict[str, Any] = {"namespaceSelector": {}, "parent": "top", "quotas": quotas, "preemption": preemption}
        objects.append(queue(name, **spec))
    cluster_state = expand.expand(objects)
    assert cluster_state.problems == ()
    return cluster.build_cluster(cluster_state, steps=50_000)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Arrival, ...]:
    rows = [
        {
            "name": f"j{at:02}",
            "queue": (name := draw(st.sampled_from(QUEUES))),
            "arrival": draw(st.integers(0, 12)),
            "runtime": draw(st.sampled_from([1, 2, 3, 5, 8, 13, 20])),
            "priority": draw(st.sampled_from(PRIORITIES[name])),
            "pods": draw(st.sampled_from([1, 1, 2, 3])),
            "requests": {"cpu": draw(st.sampled_from(["1", "1", "2"]))},
            "claims": [_claim(draw(st.sampled_from([1, 1, 2, 3])), draw(st.sampled_from(["", "", *CARDS])))],
        }
        for at in range(draw(st.integers(4, 14)))
    ]
    trace = traces.decode(Row(at, row) for at, row in enumerate(rows, 1))
    assert trace.problems == ()
    return trace.arrivals


class Watched(preempt.Preempting):
    """Notes whose reservation is later than before, or gone, once others were evicted for a gang behind them."""

    def __init__(self, stage: Clock) -> None:
        super().__init__(stage)
        self.came: dict[str, Waiting] = {}
        self.delayed: list[tuple[str, str]] = []
        self.evictions = self.spared = 0

    def arrive(self, waiting: Waiting) -> None:
        self.came[waiting.key] = waiting
        super().arrive(waiting)

    def _start(self, line: ReplayQueue, starter: Waiting, found: PreemptionTargets) -> Running:
        before = dict(self._promised())
        started = super()._start(line, starter, found)
        stage = self._clock
        stage.backfill.advance(stage.time)
        stage.backfill.refresh(stage.rules, stage.virtual_cluster.cluster, stage.queue_usage)
        after = dict(self._promised())
        self.evictions += 1
        for key, at in before.items():
            head = self.came[key]
            if queue_order.rank(head) >= queue_order.rank(starter):
                continue
            self.spared += 1
            starts = isinstance(stage.decide(head).outcome, Grant)
            if not starts and (key not in after or after[key] > at):
                self.delayed.append((key, starter.key))
        return started

    def _promised(self) -> Iterator[tuple[str, datetime]]:
        for uid, estimate in self._clock.backfill.estimates.items():
            if estimate.at is not None:
                yield uid, estimate.at


@given(towns(), jobs())
def test_no_random_gang_is_preempted_for_one_that_would_delay_the_head(
    town: ReplayCluster, arrivals: tuple[Arrival, ...]
) -> None:
    stage = Clock(town)
    decider = Watched(stage)
    left = sorted(arrivals, key=lambda one: (one.at, one.name))
    while left or stage.next_end is not None:
        times = [time for time in (left[0].at if left else None, stage.next_end) if time is not None]
        stage.now = min(times)
        freed = bool(stage.end_due())
        while left and left[0].at <= stage.now:
            arrival = left.pop(0)
            decider.arrive(Waiting(arrival, town.rules.now + arrival.at))
        decider.settle(freed=freed)

    event(f"evicted: {decider.evictions > 0}, beside a head ahead: {decider.spared > 0}")
    assert decider.delayed == []
