"""A trace that is played starts the jobs that the controller's own cycles start, at the same times.

The other side is a cluster and a ledger in memory, in which pods and claims really come and go, with a cycle after each
change: nothing of `simulation.replay` but the pods that it makes of a job.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import example, given, settings, strategies as st

from admission.api import traces
from admission.api.kubernetes.pods import Pod
from admission.api.traces import Arrival, Row
from admission.api.values import names
from admission.api.values.names import Uid
from admission.cycle import cycle
from admission.cycle.state.leader import Leader, Ports
from admission.simulation import expand, in_memory
from admission.simulation.expand import Expanded
from admission.simulation.replay import arrivals as replay_arrivals, cluster, player
from admission.simulation.replay.arrivals import Waiting
from admission.simulation.replay.player import Policy
from tests import soaking

Json = dict[str, Any]

CARDS = "ab"
TICK = timedelta(milliseconds=1)
"""Between two cycles: the ledger wants time to go on."""
IDLE = 3
"""Cycles without a grant after which none follows."""


def node(name: str, gpus: int, card: str, cpus: int) -> list[Json]:
    devices = [{"name": f"gpu-{at}", "attributes": {"card": {"string": card}}} for at in range(gpus)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    allocatable = {"cpu": str(cpus), "pods": "10"}
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}},
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": {"driver": "gpu.example.com", "nodeName": name, "pool": pool, "devices": devices},
        },
    ]


def queue(name: str, **spec: Any) -> Json:
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


PRICE: Json = {"expression": {"cel": "device.attributes['gpu.example.com'].card == 'a' ? 2 : 1"}}


def fixed(measure: Json | None = None) -> list[Json]:
    """Return a class, the meter of its devices, and the queue above all; measure: of the meter, by default a count."""
    return [
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}},
        {
            "apiVersion": "muster.dev/v1alpha1",
            "kind": "Meter",
            "metadata": {"name": "gpus"},
            "spec": {"sources": [{"deviceClasses": ["gpu"], **(measure or {"count": {}})}]},
        },
        queue("all"),
    ]


@st.composite
def towns(draw: st.DrawFn) -> Expanded:
    # What a job is charged is certain before it has devices, or not.
    objects = fixed(draw(st.sampled_from([None, PRICE])))
    for number in range(draw(st.integers(1, 3))):
        card = draw(st.sampled_from(CARDS))
        objects += node(f"node-{number}", draw(st.integers(1, 4)), card, draw(st.integers(1, 5)))
    fair = draw(st.booleans())
    for name in ("x", "y"):
        strategy = draw(st.sampled_from(["StrictFIFO", "BestEffortFIFO"]))
        quota: Json = {"meter": "gpus", "nominal": draw(st.integers(0, 6))}
        spec: Json = {"parent": "all", "namespaceSelector": {}, "queueingStrategy": strategy, "quotas": [quota]}
        spec["lending"] = draw(st.sampled_from(["WhenIdle", "Always"]))
        objects.append(queue(name, **spec, **({"fairSharing": {"weight": 1}} if fair else {})))
    cluster_state = expand.expand(objects)
    assert cluster_state.problems == ()
    return cluster_state


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Arrival, ...]:
    rows = [
        {
            "name": f"j{at}",
            "queue": draw(st.sampled_from("xxy")),
            "arrival": draw(st.integers(0, 6)),
            "runtime": draw(st.integers(2, 9)),
            # For a gang of which nobody knows when it can start, its queue keeps its own quota.
            **draw(st.sampled_from([{}, {}, {"declared": traces.NOTHING}])),
            "pods": draw(st.sampled_from([1, 1, 2, 3])),
            "priority": draw(st.sampled_from([0, 0, 0, 1])),
            "requests": {"cpu": draw(st.sampled_from(["1", "1", "2"]))},
            "claims": [_claim(draw(st.sampled_from([1, 1, 2, 3])), draw(st.sampled_from(["", "", *CARDS])))],
        }
        for at in range(draw(st.integers(3, 10)))
    ]
    trace = traces.decode(Row(at, row) for at, row in enumerate(rows, 1))
    assert trace.problems == ()
    return trace.arrivals


def _claim(count: int, card: str) -> Json:
    wanted = [f"device.attributes['gpu.example.com'].card == '{card}'"] if card else []
    return {"class": "gpu", "count": count, "selectors": wanted}


def short_later() -> tuple[Expanded, tuple[Arrival, ...]]:
    """A job whose queue has quota for it when it is asked, but no more once others of its cycle have borrowed."""
    owner = {"meter": "gpus", "nominal": 6}
    objects = [*fixed(), *node("node-0", 1, "a", 1), *node("node-1", 1, "a", 1)]
    for name, quotas in (("x", []), ("y", [owner])):
        strict = {"parent": "all", "namespaceSelector": {}, "queueingStrategy": "StrictFIFO", "quotas": quotas}
        objects.append(queue(name, **strict))
    one: Json = {"queue": "x", "arrival": 0, "runtime": 2, "claims": [_claim(1, "")]}
    rows = [{**one, "name": name} for name in ("j0", "j1", "j2", "j4")]
    rows.append({**one, "name": "j3", "queue": "y", "pods": 2, "claims": [_claim(3, "")]})
    return expand.expand(objects), traces.decode(Row(at, row) for at, row in enumerate(rows, 1)).arrivals


def kept_beside_a_reservation() -> tuple[Expanded, tuple[Arrival, ...]]:
    """A reserved start counts on quota that its owner then keeps for another job, so that it falls."""
    objects = [*fixed(), *node("node-0", 4, "a", 3), *node("node-1", 4, "a", 2)]
    for name, strategy, nominal in (("x", "BestEffortFIFO", 4), ("y", "StrictFIFO", 0)):
        spec: Json = {"parent": "all", "namespaceSelector": {}, "queueingStrategy": strategy}
        spec["quotas"] = [{"meter": "gpus", "nominal": nominal}]
        objects.append(queue(name, **spec, fairSharing={"weight": 1}))
    one: Json = {"arrival": 0, "runtime": 9, "claims": [_claim(1, "")]}
    rows = [
        {**one, "name": "borrower", "queue": "y", "claims": [_claim(2, "")]},
        {**one, "name": "reserved", "queue": "y", "pods": 3},
        {**one, "name": "passes", "queue": "x", "arrival": 3, "pods": 2},
        {**one, "name": "short", "queue": "x", "arrival": 4, "pods": 3, "priority": 1, "requests": {"cpu": "2"}},
    ]
    rows[-1]["declared"] = traces.NOTHING
    return expand.expand(objects), traces.decode(Row(at, row) for at, row in enumerate(rows, 1)).arrivals


def kept_no_longer_from_its_turn_on() -> tuple[Expanded, tuple[Arrival, ...]]:
    """An owner keeps quota until it is known, at its own turn, to fit no node; a job behind it takes that at once."""
    objects = [*fixed(), *node("node-0", 3, "a", 5), *node("node-1", 4, "b", 1)]
    for name, nominal in (("x", 0), ("y", 5)):
        spec: Json = {"parent": "all", "namespaceSelector": {}, "quotas": [{"meter": "gpus", "nominal": nominal}]}
        objects.append(queue(name, **spec, lending="WhenIdle", fairSharing={"weight": 1}))
    one: Json = {"queue": "x", "runtime": 8, "claims": [_claim(1, "")]}
    rows = [
        {**one, "name": "owner", "queue": "y", "arrival": 3, "pods": 3, "requests": {"cpu": "2"}},
        {**one, "name": "first", "arrival": 4, "pods": 3, "requests": {"cpu": "1"}},
        {**one, "name": "short", "arrival": 5, "claims": [_claim(3, "a")]},
        {**one, "name": "fits", "arrival": 6, "pods": 2},
    ]
    return expand.expand(objects), traces.decode(Row(at, row) for at, row in enumerate(rows, 1)).arrivals


def reserved_early(*, beside_an_unknown_end: bool) -> tuple[Expanded, tuple[Arrival, ...]]:
    """What a reservation leaves to others depends on when it was made.

    beside_an_unknown_end: it leaves more than it seemed to, as a job has ended of which nobody knew when.
    """
    objects = [*fixed(), *node("node-0", 3, "a", 4), *node("node-1", 4, "a", 2), *node("node-2", 3, "a", 3)]
    for name, nominal in (("x", 5), ("y", 6)):
        spec: Json = {"parent": "all", "namespaceSelector": {}, "quotas": [{"meter": "gpus", "nominal": nominal}]}
        spec["lending"] = "Always" if beside_an_unknown_end and name == "x" else "WhenIdle"
        objects.append(queue(name, **spec, fairSharing={"weight": 1}))
    one: Json = {"queue": "x", "arrival": 5, "runtime": 3, "requests": {"cpu": "1"}, "claims": [_claim(1, "")]}
    unknown = {**one, "declared": traces.NOTHING}
    rows = [
        {**one, "name": "j1", "arrival": 0, "runtime": 6, "claims": [_claim(2, "a")]},
        {**one, "name": "j0", "queue": "y", "arrival": 3, "runtime": 6, "pods": 2, "claims": [_claim(3, "")]},
        *([{**unknown, "name": "j3", "arrival": 3, "runtime": 5}] if beside_an_unknown_end else []),
        {**one, "name": "j2", "queue": "y", "requests": {"cpu": "2"}},
        {**unknown, "name": "j7"},
        {**unknown, "name": "j8", "queue": "y", "runtime": 7, "claims": [_claim(3, "")]},
        {**unknown, "name": "j6", "arrival": 6, "pods": 3},
    ]
    return expand.expand(objects), traces.decode(Row(at, row) for at, row in enumerate(rows, 1)).arrivals


class Controlled:
    """The same jobs as pods and claims in a cluster, and the controller."""

    def __init__(self, cluster_state: Expanded) -> None:
        self.cluster = in_memory.Cluster(cluster_state.snapshot)
        self.ledger = in_memory.Ledger()
        cluster = self.cluster
        ports = Ports(
            view=cluster, pods=cluster, claims=cluster, workloads=cluster, reports=cluster, ledger=self.ledger
        )
        self.leader = Leader.build(ports=ports, actor="test", epoch=1)
        self.begun = cluster_state.now

    async def starts(self, arrivals: tuple[Arrival, ...]) -> dict[str, float]:
        """Return when every job that starts does."""
        found: dict[str, timedelta] = {}
        pods: dict[str, tuple[Pod, ...]] = {}
        left = list(arrivals)
        ends: dict[str, timedelta] = {}
        runtimes = {arrival.name: arrival.runtime for arrival in arrivals}
        while left or ends:
            now = min([*ends.values(), *(arrival.at for arrival in left)])
            for name in [name for name, end in ends.items() if end == now]:
                self.end(pods[name])
                del ends[name]
            for arrival in [one for one in left if one.at == now]:
                pods[arrival.name] = self.create(arrival)
                left.remove(arrival)
            for key in await self.settle(now):
                name = key.removeprefix(f"{replay_arrivals.NAMESPACE}/")
                found[name], ends[name] = now, now + runtimes[name]
        return {name: start.total_seconds() for name, start in found.items()}

    async def settle(self, now: timedelta) -> list[str]:
        """Run cycles until nothing more is granted; return who was.

        What ended is released by one cycle, what was bound is settled by the next, and what a lender keeps for a gang
        is lent again once a start is reserved for it.
        """
        granted: list[str] = []
        at = self.begun + now
        idle = 0
        while idle < IDLE:
            result = await cycle.run(self.leader, at)
            self.cluster.schedule(self.ledger.book)
            at += TICK
            granted += result.granted
            idle = 0 if result.granted else idle + 1
        return granted

    def create(self, arrival: Arrival) -> tuple[Pod, ...]:
        waiting = Waiting(arrival, self.begun + arrival.at)
        labels = {names.GANG: arrival.name, names.GANG_SIZE: str(arrival.pods), names.QUEUE: arrival.queue}
        made = tuple(
            replace(pod, meta=replace(pod.meta, labels=labels, resource_version="1"))
            for pod in replay_arrivals.gang_of(waiting).pods
        )
        self.cluster._pods.update((pod.meta.uid, pod) for pod in made)
        for claim in waiting.claims:
            self.cluster._claims[claim.meta.key] = replace(claim, meta=replace(claim.meta, resource_version="1"))
        return made

    def end(self, pods: tuple[Pod, ...]) -> None:
        self.cluster.finish(pods)
        for pod in pods:
            del self.cluster._pods[Uid(pod.meta.uid)]
            for claim in pod.claims:
                del self.cluster._claims[f"{pod.meta.namespace}/{claim.claim}"]


@settings(max_examples=soaking.examples(25), deadline=None)
@example(*short_later())
@example(*kept_beside_a_reservation())
@example(*kept_no_longer_from_its_turn_on())
@example(*reserved_early(beside_an_unknown_end=False))
@example(*reserved_early(beside_an_unknown_end=True))
@given(towns(), jobs())
def test_a_trace_is_played_as_the_controller_would_decide(
    cluster_state: Expanded, arrivals: tuple[Arrival, ...]
) -> None:
    played = player.replay(cluster.build_cluster(cluster_state, steps=50_000), arrivals, Policy.MUSTER)

    found = {job.arrival.name: job.start.total_seconds() for job in played.jobs if job.start is not None}

    assert found == asyncio.run(Controlled(cluster_state).starts(arrivals))
