"""What is played again has the same outcome: in another process, and after other policies on one cluster."""

import os
import subprocess
import sys
from pathlib import Path

from admission.simulation.replay import cluster, player
from admission.simulation.replay.player import Policy
from tests.bench import trace
from tests.unit.simulation.test_replay import starts

PLAYED = """
from admission.simulation.replay import cluster, player
from admission.simulation.replay.player import Policy
from tests.bench import trace
from tests.conformance import quotas
shape = trace.Shape(jobs=150, nodes=8, load=1.2)
town = cluster.build_cluster(trace.town(shape), steps=50_000)
for policy in Policy:
    print(sorted((job.arrival.name, job.start) for job in player.replay(town, trace.arrivals(shape), policy).jobs))
for record in quotas.records():
    if record["id"].startswith("fair-sharing/preempts-largest"):
        print(quotas.difference(dict(record, admitted=[], evicted=[])))
"""


def test_the_same_trace_and_the_same_evictions_by_shares_are_always_played_the_same() -> None:
    """Another process puts sets of names in another order."""
    plays = [
        subprocess.Popen(
            [sys.executable, "-c", PLAYED],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    first, second = (played.communicate()[0] for played in plays)

    assert first.count("timedelta") > 150
    assert first.count("got (['w'], [") == 3
    assert first == second


def test_an_earlier_replay_does_not_change_a_later_replay() -> None:
    """`--compare` plays a trace more than once, on one cluster."""
    shape = trace.Shape(jobs=400, nodes=16, load=0.9)
    place, arrivals = cluster.build_cluster(trace.town(shape), steps=50_000), trace.arrivals(shape)

    first, _, again = (player.replay(place, arrivals, policy) for policy in (*reversed(Policy), Policy.FIFO_COUNT))

    assert starts(first) == starts(again)
