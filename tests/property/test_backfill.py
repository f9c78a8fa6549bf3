"""Laws of backfill: who is promised a time starts by then, and nobody waits for ever.

Single queues of gangs, mostly of one priority, so that nobody but those who pass can be in the way of the first one.
Who comes later with a higher priority goes before it, and takes over what is reserved for it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from hypothesis import given, strategies as st

from admission.api import traces
from admission.api.traces import Arrival, Row
from admission.simulation import expand
from admission.simulation.replay import cluster
from admission.simulation.replay.arrivals import Waiting
from admission.simulation.replay.cluster import Clock, ReplayCluster
from admission.simulation.replay.queue import Muster
from tests.property.test_replay import CARDS, _claim, fixed, node, queue

Json = dict[str, Any]


@st.composite
def towns(draw: st.DrawFn) -> ReplayCluster:
    objects = fixed()
    for number in range(draw(st.integers(1, 4))):
        card = draw(st.sampled_from(CARDS))
        objects += node(f"node-{number}", draw(st.integers(1, 4)), card, draw(st.integers(2, 6)))
    strategy = draw(st.sampled_from(["BestEffortFIFO", "BestEffortFIFO", "StrictFIFO"]))
    quota = {"meter": "gpus", "nominal": draw(st.integers(2, 12))}
    objects.append(queue("x", namespaceSelector={}, queueingStrategy=strategy, quotas=[quota]))
    cluster_state = expand.expand(objects)
    assert cluster_state.problems == ()
    return cluster.build_cluster(cluster_state, steps=50_000)


@st.composite
def jobs(draw: st.DrawFn, priorities: Sequence[int] = (0,)) -> tuple[Arrival, ...]:
    rows = [
        {
            "name": f"j{at:02}",
            "queue": "x",
            "arrival": draw(st.integers(0, 12)),
            "runtime": draw(st.integers(1, 20)),
            "priority": draw(st.sampled_from(priorities)),
            "pods": draw(st.sampled_from([1, 1, 1, 2, 3, 4])),
            "requests": {"cpu": draw(st.sampled_from(["1", "1", "2"]))},
            "claims": [_claim(draw(st.sampled_from([1, 1, 2, 3])), draw(st.sampled_from(["", "", *CARDS])))],
        }
        for at in range(draw(st.integers(4, 16)))
    ]
    trace = traces.decode(Row(at, row) for at, row in enumerate(rows, 1))
    assert trace.problems == ()
    return trace.arrivals


class Promises:
    """A trace as it is played, with the first time that every head was promised, and when that was."""

    def __init__(self, town: ReplayCluster, arrivals: tuple[Arrival, ...]) -> None:
        self.promised: dict[str, datetime] = {}
        self.since: dict[str, datetime] = {}
        self.started: dict[str, datetime] = {}
        self.stage = Clock(town)
        self.decider = Muster(self.stage)
        left = sorted(arrivals, key=lambda one: (one.at, one.name))
        while left or self.stage.next_end is not None:
            times = [time for time in (left[0].at if left else None, self.stage.next_end) if time is not None]
            self.stage.now = min(times)
            freed = bool(self.stage.end_due())
            while left and left[0].at <= self.stage.now:
                arrival = left.pop(0)
                self.decider.arrive(Waiting(arrival, town.rules.now + arrival.at))
            for running in self.decider.settle(freed=freed):
                self.started[running.waiting.key] = self.stage.time
            self.stage.backfill.refresh(self.stage.rules, self.stage.virtual_cluster.cluster, self.stage.queue_usage)
            for uid, estimate in self.stage.backfill.estimates.items():
                if estimate.at is not None:
                    self.promised.setdefault(uid, estimate.at)
                    self.since.setdefault(uid, self.stage.time)
        self.decider.refused.clear()


@given(towns(), jobs())
def test_a_gang_with_a_start_estimate_starts_by_then(town: ReplayCluster, arrivals: tuple[Arrival, ...]) -> None:
    found = Promises(town, arrivals)

    late = {key: (at, found.started.get(key)) for key, at in found.promised.items() if found.started[key] > at}
    assert late == {}


@given(towns(), jobs(priorities=(0, 0, 0, 5, 9)))
def test_only_a_later_gang_of_higher_priority_takes_over_a_reservation(
    town: ReplayCluster, arrivals: tuple[Arrival, ...]
) -> None:
    found = Promises(town, arrivals)

    came = {one.name: (one.priority, town.rules.now + one.at) for one in arrivals}
    for key, at in found.promised.items():
        # Where the order is strict, one that can never start holds up those behind it for ever.
        start, (own, _) = found.started.get(key), came[key.rpartition("/")[2]]
        later = [when for other, when in came.values() if other > own and found.since[key] < when]
        ahead = [when for when in later if start is None or when <= start]
        assert ahead or (start is not None and start <= at)


@given(towns(), jobs())
def test_no_gang_that_could_start_alone_waits_for_ever(town: ReplayCluster, arrivals: tuple[Arrival, ...]) -> None:
    found = Promises(town, arrivals)

    for job, _ in found.decider.waiting():
        alone = Promises(town, (job.arrival,))
        is_behind = town.queue(job).strategy == "StrictFIFO"
        assert alone.started == {} or is_behind
