"""A cluster of mixed cards and a trace in the shape of public traces of GPU clusters.

In the shape of what is published of Microsoft's Philly (Jeon et al., ATC 2019), SenseTime's Helios (Hu et al., SC 2021)
and Alibaba's PAI (Weng et al., NSDI 2022): most jobs ask for one GPU and few for many, up to 64; runtimes are
lognormal with a heavy tail, and larger jobs run longer; arrivals follow the day, with nights at a third of the
afternoon. Nothing here is copied from these traces, only shapes. The same seed has the same trace.
"""

import math
from dataclasses import dataclass
from random import Random
from typing import Any

from admission.api import traces
from admission.api.traces import Arrival, Row
from admission.simulation import expand
from admission.simulation.expand import Expanded

Json = dict[str, Any]

DRIVER = "gpu.example.com"
CARDS = {"a100": 0.4, "h100": 0.25, "l40s": 0.35}
"""The parts of the nodes that have each card, eight of them."""
WISHES = {"": 0.4, "a100": 0.3, "h100": 0.15, "l40s": 0.15}
"""Of jobs, which card they ask for; the first ones take any."""
SIZES = {1: 0.62, 2: 0.12, 4: 0.1, 8: 0.1, 16: 0.035, 32: 0.017, 64: 0.008}
"""Of jobs, how many GPUs they ask for. Eight to a pod."""
PER_NODE = 8
MEDIAN = 900.0
"""Seconds that half of the jobs of one GPU run at most."""
SPREAD = 1.7
"""Sigma of the lognormal runtimes."""
LONGEST = 3 * 86_400.0
DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What to make: so many jobs for so many nodes, with so much to do for every GPU as it can do."""

    jobs: int
    nodes: int = 1_200
    queues: int = 8
    load: float = 1.0
    seed: int = 2026
    strict: bool = False
    overrun: float = 0.0
    """The part of the jobs that run longer than they say: up to ten times as long."""
    silent: float = 0.0
    """The part of the jobs that say nothing of their runtime."""
    slack: float = 1.0
    """How many times its runtime a job says that it runs, at most."""


def town(shape: Shape) -> Expanded:
    """Return the cluster: nodes of eight cards of one sort, and equal queues that may borrow from each other."""
    found = [*_classes(), *_queues(shape)]
    cards = [card for card, part in CARDS.items() for _ in range(round(part * shape.nodes))]
    Random(shape.seed).shuffle(cards)  # noqa: S311 - not for secrets
    for at, card in enumerate(cards):
        found += _node(f"node-{at:04}", card)
    cluster = expand.expand(found)
    assert not cluster.problems, cluster.problems
    return cluster


def arrivals(shape: Shape) -> tuple[Arrival, ...]:
    """Return the trace."""
    trace = traces.decode(Row(at, row) for at, row in enumerate(rows(shape), 1))
    assert not trace.problems, trace.problems
    return trace.arrivals


def rows(shape: Shape) -> list[Json]:
    """Return the rows of the trace, as a file of it would have them."""
    random = Random(shape.seed)  # noqa: S311 - not for secrets
    # What jobs say of themselves changes nothing of what they are.
    sayings = Random(shape.seed + 1)  # noqa: S311 - not for secrets
    jobs = [_job(random) for _ in range(shape.jobs)]
    work = sum(gpus * seconds for gpus, _, seconds in jobs)
    span = work / (shape.load * shape.nodes * PER_NODE)
    moments = sorted(_moment(random, span) for _ in jobs)
    return [
        {
            "name": f"job-{at:06}",
            "queue": f"team-{random.randrange(shape.queues)}",
            "arrival": round(moment),
            "runtime": round(seconds),
            **_declared(sayings, round(seconds), shape),
            "pods": max(1, gpus // PER_NODE),
            "requests": {"cpu": str(6 * min(gpus, PER_NODE))},
            "claims": [_claim(min(gpus, PER_NODE), card)],
        }
        for at, (moment, (gpus, card, seconds)) in enumerate(zip(moments, jobs, strict=True))
    ]


def _job(random: Random) -> tuple[int, str, float]:
    """Return GPUs, card and seconds of a job."""
    gpus = random.choices([*SIZES], [*SIZES.values()])[0]
    card = random.choices([*WISHES], [*WISHES.values()])[0]
    median = MEDIAN * (1 + math.log2(gpus) / 2)
    seconds = random.lognormvariate(math.log(median), SPREAD)
    return gpus, card, min(max(seconds, 30.0), LONGEST)


def _declared(random: Random, seconds: int, shape: Shape) -> Json:
    """Return what a job says of its runtime: too little, nothing, or more than it is; the truth by default."""
    sort, part = random.random(), random.random()
    if sort < shape.overrun:
        return {"declared": max(1, round(seconds * 10**-part))}
    if sort < shape.overrun + shape.silent:
        return {"declared": traces.NOTHING}
    return {"declared": round(seconds * shape.slack**part)} if shape.slack > 1 else {}


def _moment(random: Random, span: float) -> float:
    """Return when a job arrives: anywhere in the span, but less likely at night."""
    while True:
        at = random.uniform(0, span)
        if random.random() < 2 / 3 - math.cos(2 * math.pi * at / DAY) / 3:
            return at


def _claim(gpus: int, card: str) -> Json:
    asked: Json = {"class": "gpu", "count": gpus}
    return {**asked, "selectors": [f"device.attributes['{DRIVER}'].card == '{card}'"]} if card else asked


def _classes() -> list[Json]:
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    meter = {"sources": [{"deviceClasses": ["gpu"], "count": {}}]}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "gpu"},
            "spec": {"selectors": selectors},
        },
        {"apiVersion": "muster.dev/v1alpha1", "kind": "Meter", "metadata": {"name": "gpus"}, "spec": meter},
    ]


def _queues(shape: Shape) -> list[Json]:
    nominal = shape.nodes * PER_NODE // shape.queues
    strategy = "StrictFIFO" if shape.strict else "BestEffortFIFO"
    specs: dict[str, Json] = {"all": {}}
    for number in range(shape.queues):
        specs[f"team-{number}"] = {
            "parent": "all",
            "namespaceSelector": {},
            "queueingStrategy": strategy,
            "quotas": [{"meter": "gpus", "nominal": nominal}],
            "fairSharing": {"weight": 1},
        }
    return [
        {"apiVersion": "muster.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        for name, spec in specs.items()
    ]


def _node(name: str, card: str) -> list[Json]:
    devices = [{"name": f"gpu-{at}", "attributes": {"card": {"string": card}}} for at in range(PER_NODE)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"card": card}},
            "status": {"allocatable": {"cpu": "96", "pods": "110"}},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices},
        },
    ]
