"""Muster on a real control plane beside the same Jobs without any queue, and beside Kueue: time, processor, requests.

One control plane, whose clients may all ask as often as they like. In turn: without a queue, with Muster by `Pin` where
Jobs enter the default queue, with Jobs that name it, with Jobs held as a whole, with those that would wait held so, by
`Allocate` behind a fence, and with Kueue, which suspends every Job and resumes it. All ways are gone through several
times, since the speed of a machine drifts; each figure is the median of the rounds. In each a few Jobs go first and do
not count. Jobs run for a second. Four rows:

- fit: Jobs that fit at once, from the first one's creation until the last pod has ended.
- queue: five times as many.
- paced: two Jobs a second.
- burst: gangs that wait for quota while kube-scheduler is away, from more quota until the last gate is open.

How long a Job waits is from when its creation was asked for until the last of its pods is bound.
"""

import contextlib
import itertools
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from admission.api.values import names
from tests.bench import kueue
from tests.bench.cluster_accounts import Account
from tests.bench.cluster_sights import ObservedObjects
from tests.controlplane import ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e.musters import ROLES, Muster
from tests.e2e.teams import GROUP, found_team, job

GANG = 4
GPUS = 8
TEMPLATE = "one-gpu"
WAYS = ("plain", "Pin", "Named", "Workload", "Auto", "Allocate", "Kueue")
_SPECS: Mapping[str, Mapping[str, str]] = {
    "Pin": {"placement": "Pin"},
    "Named": {"placement": "Pin"},
    "Workload": {"holdAt": "Workload"},
    "Auto": {"holdAt": "Auto"},
    "Allocate": {"placement": "Allocate"},
}
HELD = ("Workload", "Auto")
"""Ways in which Jobs that wait have no pods."""

ROWS = ("fit", "queue", "paced", "burst")
PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kwok")
RUNTIME = {workloads.RUNTIME: "1s"}
WARM_UP = 10
USERS = {kueue.USER: ("system:masters",)}
"""Beside those of every control plane."""

PER_SECOND = 2
STARTING = 5.0
"""Seconds that the API server gets to take over Muster's CRDs, for which it works long."""

SETTLING = 2.0
"""Seconds that statuses and Events get to be written, in every way, before a round's costs are read."""

PATIENCE = 600.0


@dataclass(frozen=True, kw_only=True)
class Size:
    """gangs: that fit at once and fill the fleet. paced: seconds of that row."""

    gangs: int
    queued: int
    paced: float

    @property
    def nodes(self) -> int:
        return math.ceil(self.gangs * GANG / GPUS)


@dataclass(kw_only=True)
class Bench:
    """One way on one control plane: where its Jobs go, and whose costs count.

    kueue: its pid. labels: of each Job. held: whether Jobs that wait have no pods.
    """

    control_plane: ControlPlane
    namespace: Namespace
    muster: Muster | None = None
    kueue: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    held: bool = False
    serial: int = 0

    def account(self) -> Account:
        pids = {name: self.control_plane.pid(name) for name in PROGRAMS if name != "kube-scheduler"}
        with contextlib.suppress(KeyError):  # away for the burst
            pids["kube-scheduler"] = self.control_plane.pid("kube-scheduler")
        if self.muster is not None:
            pids["muster"] = self.muster.program.pid
        if self.kueue is not None:
            pids["kueue"] = self.kueue
        return Account.read(self.control_plane.client(), pids)

    @property
    def jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.namespace.name}/jobs"

    def submit(self, gangs: int, *, pods: int = GANG, every: float = 0.0) -> dict[str, float]:
        """Create Jobs, all at once or one `every` so many seconds; return by name when each was asked for."""
        self.serial += 1
        manifests = [
            job(f"r{self.serial}-{n}", pods=pods, template=TEMPLATE, annotations=RUNTIME) for n in range(gangs)
        ]
        for manifest in manifests if self.labels else ():
            manifest["metadata"]["labels"] = dict(self.labels)
        began, asked = time.monotonic(), dict[str, float]()

        def create(manifest: dict[str, Any]) -> None:
            asked[manifest["metadata"]["name"]] = time.monotonic()
            self.namespace.client.create(self.jobs, manifest)

        with ThreadPoolExecutor(8) as pool:
            created = []
            for number, manifest in enumerate(manifests):
                if every:
                    time.sleep(max(0.0, began + number * every - time.monotonic()))
                created.append(pool.submit(create, manifest))
        for one in created:
            one.result()
        return asked

    def clear(self) -> None:
        """Delete all Jobs and wait until nothing is left of them."""
        client = self.namespace.client
        # The API server answers when all of them are deleted, a thousand Jobs not within the usual time.
        replace(client, timeout=PATIENCE).delete(f"{self.jobs}?propagationPolicy=Background")
        left = [self.jobs, self.namespace.pods, self.namespace.claims]
        if self.kueue is not None:
            left.append(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{self.namespace.name}/workloads")
        if self.muster is not None:
            left.append(f"{GROUP}/namespaces/{self.namespace.name}/gangs")
        eventually(
            lambda: not any(map(client.items, left)),
            what=f"{self.namespace.name} is empty again",
            within=PATIENCE,
        )


def measure(
    *,
    gangs: int,
    queued: int,
    paced: float,
    rows: tuple[str, ...] = ROWS,
    ways: tuple[str, ...] = WAYS,
    rounds: int = 1,
) -> dict[str, Any]:
    """Run the rows in every way on a fleet that the gangs fill, and all of that so many rounds."""
    size = Size(gangs=gangs, queued=queued, paced=paced)
    found: dict[str, dict[str, list[dict[str, Any]]]] = {way: {} for way in ways}
    with ControlPlane(extra_users=USERS) as control_plane:
        fleet.install(control_plane.client(), fleet.demo_fleet([GPUS] * size.nodes))
        for turn, way in itertools.product(range(rounds), ways):
            with bench_of(control_plane, way, quota=size.gangs * GANG, turn=turn) as bench:
                _timed(bench, WARM_UP)
                for row in rows if bench.muster else (row for row in rows if row != "burst"):
                    figures = _ROWS[row](bench, size)
                    found[way].setdefault(row, []).append(figures)
                    # It takes long, and what is known shall not be lost when it is stopped.
                    Console(stderr=True).print(f"{way} {row}: {figures}")
    medians = {way: {row: _medians(each) for row, each in found[way].items()} for way in ways}
    sizes = {"gangs": gangs, "queued": queued, "nodes": size.nodes, "rounds": rounds}
    return {**sizes, "load": os.getloadavg()[0], "ways": medians}


def _medians(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the median of each figure by name, also within mappings; what a round lacks is 0 in it."""
    found = dict[str, Any]()
    for name in dict.fromkeys(itertools.chain.from_iterable(rounds)):
        each = [one.get(name, 0) for one in rounds]
        of_mappings = any(isinstance(one, Mapping) for one in each)
        found[name] = _medians([one or {} for one in each]) if of_mappings else statistics.median(each)
    return found


@contextlib.contextmanager
def bench_of(control_plane: ControlPlane, way: str, *, quota: int, turn: int = 0) -> Iterator[Bench]:
    """Yield one way, with its namespace, and its Muster and queue if it has any. quota: of one-GPU pods.

    turn: how often the control plane had this way before.
    """
    client = control_plane.client()
    namespace = Namespace(name=f"bench-{way.lower()}-{turn}", client=client)
    client.create("/api/v1/namespaces", {"metadata": {"name": namespace.name}})
    namespace.create(workloads.claim_template(TEMPLATE))
    if way == "plain":
        yield Bench(control_plane=control_plane, namespace=namespace)
        return
    if way == "Kueue":
        with kueue.kueue(control_plane, namespace=namespace.name, devices=quota) as program:
            labels = {kueue.LABEL: kueue.QUEUE}
            yield Bench(control_plane=control_plane, namespace=namespace, kueue=program.pid, labels=labels)
        return
    fence = [fleet.DRIVER] if way == "Allocate" else []
    muster = Muster(control_plane, roles=[*ROLES], fence=fence, controller={}, lease={})
    try:
        muster.start()
        team = found_team(control_plane, namespace, gpus=quota, claims=quota, **_SPECS[way])
        time.sleep(STARTING)
        labels = {names.QUEUE: team.queue} if way == "Named" else {}
        yield Bench(control_plane=control_plane, namespace=namespace, muster=muster, labels=labels, held=way in HELD)
    finally:
        muster.clean()


def _timed(bench: Bench, gangs: int, every: float = 0.0) -> dict[str, Any]:
    """Run so many Jobs, all at once or one `every` so many seconds, until all have ended."""
    with ObservedObjects(bench.namespace) as sights:
        before = bench.account()
        asked = bench.submit(gangs, every=every)
        seconds = sights.wait("ended", gangs * GANG, within=PATIENCE) - min(asked.values())
        time.sleep(SETTLING)
        spent = bench.account().since(before)
        waits = _waits(sights, asked)
    bench.clear()
    bound = {"p50": _percentile(waits, 0.50), "p99": _percentile(waits, 0.99)}
    return {"seconds": seconds, **bound, **_costs(spent, gangs)}


def _waits(sights: ObservedObjects, asked: Mapping[str, float]) -> list[float]:
    """Return how long each Job waited until the last of its pods was bound, the shortest first."""
    bound = dict[str, float]()
    for pod, moment in sights.times["bound"].items():
        name = pod.rpartition("-")[0]
        bound[name] = max(moment, bound.get(name, moment))
    return sorted(bound[name] - moment for name, moment in asked.items())


def _burst(bench: Bench, size: Size) -> dict[str, Any]:
    pods, client = size.gangs * GANG, bench.namespace.client
    path = f"{GROUP}/queues/queue-{bench.namespace.name}"
    # A gang that its queue could never take is turned away, so one is let in before.
    _set_quota(bench, GANG)
    bench.control_plane.stop_program("kube-scheduler")
    with ObservedObjects(bench.namespace) as sights:
        bench.submit(size.gangs)
        if not bench.held:
            sights.wait("created", pods, within=PATIENCE)
        eventually(
            lambda: client.get(path).get("status", {}).get("gangs", {}).get("pending") == size.gangs - 1,
            what="all gangs but one wait for quota",
            within=PATIENCE,
        )
        time.sleep(SETTLING)
        before, began = bench.account(), time.monotonic()
        _set_quota(bench, pods)
        seconds = sights.wait("ungated", pods, within=PATIENCE) - began
        time.sleep(SETTLING)
        spent = bench.account().since(before)
    bench.clear()
    bench.control_plane.start_program("kube-scheduler")
    return {"per_second": (size.gangs - 1) / seconds, "seconds": seconds, **_costs(spent, size.gangs)}


_ROWS: Mapping[str, Callable[[Bench, Size], dict[str, Any]]] = {
    "fit": lambda bench, size: _timed(bench, size.gangs),
    "queue": lambda bench, size: _timed(bench, size.queued),
    "paced": lambda bench, size: _timed(bench, round(size.paced * PER_SECOND), 1 / PER_SECOND),
    "burst": _burst,
}


def _set_quota(bench: Bench, gpus: int) -> None:
    quotas = [{"meter": meter, "nominal": str(gpus)} for meter in ("claims", "gpus")]
    path = f"{GROUP}/queues/queue-{bench.namespace.name}"
    bench.namespace.client.merge_patch(path, {"spec": {"quotas": quotas}})


def _costs(spent: Account, gangs: int) -> dict[str, Any]:
    requests = {what: round(n / gangs, 2) for what, n in spent.requests.items() if n / gangs >= 0.005}
    return {
        "processor": sum(spent.seconds.values()),
        "processors": {name: round(seconds, 2) for name, seconds in spent.seconds.items()},
        "requests": sum(n for what, n in spent.requests.items() if not what.startswith("webhook ")) / gangs,
        "requests_by": requests,
    }


def _percentile(waits: list[float], share: float) -> float:
    return waits[min(len(waits) - 1, int(share * len(waits)))]


def tables(result: Mapping[str, Any]) -> list[Table]:
    """Return the figures, the processor seconds of the Jobs that fit, and their requests."""
    ways = result["ways"]
    fleet_text = f"{result['nodes']} nodes of {GPUS} GPUs"
    rounds = f"{result['rounds']} rounds (load {result['load']:.1f})"
    rows = Table(title=f"{result['gangs']} gangs of {GANG} on {fleet_text}, {rounds}")
    rows.add_column("")
    for way in ways:
        rows.add_column(way, justify="right")
    for title, row, key in _FIGURES:
        figures = [ways[way].get(row, {}).get(key) for way in ways]
        if any(figure is not None for figure in figures):
            rows.add_row(title, *_against(figures, ratio=key in ("seconds", "processor", "requests")))
    return [rows, *(_detail(ways, row, key, title) for row in ROWS for key, title in _DETAILS if _has(ways, row))]


_FIGURES = (
    ("fit: s until all have ended", "fit", "seconds"),
    ("fit: processor s", "fit", "processor"),
    ("fit: p50 s from created to bound", "fit", "p50"),
    ("fit: p99 s", "fit", "p99"),
    ("fit: requests per gang", "fit", "requests"),
    ("queue: s until all have ended", "queue", "seconds"),
    ("queue: processor s", "queue", "processor"),
    ("paced: p50 s from created to bound", "paced", "p50"),
    ("paced: p99 s", "paced", "p99"),
    ("burst: gangs/s", "burst", "per_second"),
    ("burst: processor s", "burst", "processor"),
    ("burst: requests per gang", "burst", "requests"),
)
_DETAILS = (("processors", "processor s"), ("requests_by", "requests per gang"))


def _has(ways: Mapping[str, Any], row: str) -> bool:
    return any(row in found for found in ways.values())


def _against(figures: list[float | None], *, ratio: bool) -> list[str]:
    """Return the figures as text; where there is a first one, and ratios mean much, with theirs to it."""
    texts = []
    for figure in figures:
        text = "" if figure is None else f"{figure:.2f}"
        if ratio and figure is not None and figures[0] and figure is not figures[0]:
            text += f" ({figure / figures[0]:.2f} times)"
        texts.append(text)
    return texts


def _detail(ways: Mapping[str, Any], row: str, key: str, title: str) -> Table:
    table = Table(title=f"{row}: {title}")
    table.add_column("")
    for way in ways:
        table.add_column(way, justify="right")
    for what in sorted({what for found in ways.values() for what in found.get(row, {}).get(key, {})}):
        table.add_row(what, *(f"{ways[way].get(row, {}).get(key, {}).get(what, 0):.2f}" for way in ways))
    return table
