"""Allocated devices: the time of a scrape that exports them, and of a cycle that follows their claims.

Goals (issue 30), in one process on one core: the page with 40,000 allocated devices in ≤ 1 s, also the first one of a
term; what a cycle does for them after one claim has changed ≤ 50 ms.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from rich.table import Table

from admission.api.kubernetes import claims, devices, pods
from admission.api.muster.ledger_entries import Holding, Placement, Seat
from admission.api.snapshot import Snapshot, Version
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.cycle.state.result import CycleResult
from admission.quota.tree import Tree
from admission.status.device_allocations import DeviceAllocations
from admission.telemetry.metrics import Metrics

K = TypeVar("K")
V = TypeVar("V")

DEVICES = 40_000
ON_NODE = 8
PODS = 16
"""Of each gang, each with a claim for one device."""
GOALS = {"first_page_s": 1.0, "page_s": 1.0, "cycle_ms": 50.0}


def measure(*, rounds: int) -> dict[str, Any]:
    """Return medians over rounds, and whether the goals are met."""
    snapshot, placements, tree = _cluster()
    times: tuple[list[float], list[float], list[float]] = ([], [], [])
    first, page, cycle = times
    size = 0
    for _ in range(rounds):
        allocations, metrics = DeviceAllocations(), Metrics(allocations=DEVICES)
        metrics.set_term(1)
        metrics.record_cycle(CycleResult(allocations=allocations.update(snapshot, placements, tree)), 0.1)
        seconds, shown = _timed(partial(metrics.render, [], {}))
        first.append(seconds)
        size = len(shown[0])
        seconds, found = _timed(partial(allocations.update, _changed(snapshot), placements, tree))
        cycle.append(seconds * 1000)
        metrics.record_cycle(CycleResult(allocations=found), 0.1)
        seconds, _ = _timed(partial(metrics.render, [], {}))
        page.append(seconds)
    numbers = {name: statistics.median(of) for name, of in zip(GOALS, times, strict=True)}
    met = {name: numbers[name] <= goal for name, goal in GOALS.items()}
    return {"devices": DEVICES, "rounds": rounds, "page_bytes": size, **numbers, "goals": GOALS, "met": met}


def table(result: dict[str, Any]) -> Table:
    """Return the result as a table."""
    found = Table(title=f"{result['devices']} allocated devices, {result['page_bytes'] / 1e6:.1f} MB a page, medians")
    for column in ("", "found", "goal"):
        found.add_column(column, justify="right")
    rows = {
        "first_page_s": "first page of a term, s",
        "page_s": "page after one claim changed, s",
        "cycle_ms": "the cycle's part of it, ms",
    }
    for name, title in rows.items():
        found.add_row(title, f"{result[name]:.3f}", f"{result['goals'][name]:g}")
    return found


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    start = time.process_time()
    found = run()
    return time.process_time() - start, found


def _cluster() -> tuple[Snapshot, dict[GangUid, Placement], Tree]:
    slices = (_slice(node) for node in range(DEVICES // ON_NODE))
    found, users = (_claim(number) for number in range(DEVICES)), (_pod(number) for number in range(DEVICES))
    snapshot = Snapshot(
        slices=_version((one.meta.key, one) for one in slices),
        claims=_version((one.meta.key, one) for one in found),
        pods=_version((one.meta.uid, one) for one in users),
    )
    placements = (_placement(first) for first in range(0, DEVICES, PODS))
    return snapshot, {one.gang_uid: one for one in placements}, Tree()


def _changed(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot in which one claim is another object, and has no user any more."""
    assert isinstance(snapshot.claims, Version)
    after = Version(snapshot.claims)
    after.put("ml/train-7-gpus", _claim(7, used=False))
    return Snapshot(slices=snapshot.slices, claims=after, pods=snapshot.pods)


def _version(objects: Iterable[tuple[K, V]]) -> Version[K, V]:
    version = Version[K, V]()
    for key, value in objects:
        version.put(key, value)
    return version


def _slice(node: int) -> devices.Slice:
    members = [
        {"name": f"gpu-{at}", "attributes": {"uuid": {"string": f"GPU-0f6b1c2e-{node:04}-4d1a-9b3c-0000000000{at:02}"}}}
        for at in range(ON_NODE)
    ]
    pool = {"name": f"node-{node}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": f"node-{node}", "pool": pool, "devices": members}
    return devices.decode_slice({"metadata": {"name": f"node-{node}", "uid": f"slice-{node}"}, "spec": spec})


def _claim(number: int, *, used: bool = True) -> claims.Claim:
    given = {"pool": f"node-{number // ON_NODE}", "device": f"gpu-{number % ON_NODE}"}
    result = {"request": "gpu", "driver": "gpu.nvidia.com", **given}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"name": f"train-{number}", "uid": f"pod-{number}"}] if used else [],
    }
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    meta = {"name": f"train-{number}-gpus", "namespace": "ml", "uid": f"claim-{number}"}
    return claims.decode({"metadata": meta, "spec": {"devices": {"requests": [request]}}, "status": status})


def _pod(number: int) -> pods.Pod:
    meta = {"name": f"train-{number}", "namespace": "ml", "uid": f"pod-{number}"}
    return pods.decode({"metadata": meta, "spec": {"containers": [], "nodeName": f"node-{number // ON_NODE}"}})


def _placement(first: int) -> Placement:
    numbers = range(first, first + PODS)
    seats = (Seat(pod_uid=Uid(f"pod-{n}"), pod=f"ml/train-{n}", node=NodeName(f"node-{n // ON_NODE}")) for n in numbers)
    holdings = (
        Holding(claim_uid=Uid(f"claim-{n}"), claim=f"ml/train-{n}-gpus", devices=(), charge={}, settled=True)
        for n in numbers
    )
    return Placement(
        gang_uid=GangUid(f"gang-{first}"),
        gang=f"ml/train-{first}",
        queue=QueueName("research-vision"),
        reserved_at=datetime(2026, 11, 1, tzinfo=UTC),
        seats={seat.pod_uid: seat for seat in seats},
        holdings={holding.claim_uid: holding for holding in holdings},
    )
