"""A dashboard before a large cluster that changes all the time: `python -m tests.bench.dashboard_site FOLDER …`.

It is the real server, fed as the watches feed it: objects as JSON into a store, 20 changed gangs a second. Books of a
year are in a SQLite file. Who asks may see everything; how fast an API server says so is not measured here.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from admission.api import listings
from admission.api.kubernetes.access_review import Question, UserInfo
from admission.api.listings import EventList, PodList
from admission.api.values.names import API_VERSION
from admission.dashboard import server
from admission.dashboard.auth.rbac import CachedReviewer
from admission.dashboard.auth.session import Sessions
from admission.dashboard.gang_listings import GangListings
from admission.dashboard.jinja_environment import Templates
from admission.dashboard.request_context import AppContext
from admission.dashboard.server import Listening
from admission.dashboard.view_model import ClusterViews
from admission.dashboard_app import Ledger
from admission.kube.cache import dashboard_store, reflector, watched_resources
from admission.kube.cache.dashboard_store import DashboardStore
from admission.kube.cache.store import Store
from admission.kube.cache.watched_resources import Kind
from admission.ledger.db import migrations
from tests.bench import years

Json = dict[str, Any]

NOW = years.START + years.LENGTH
"""The books end here, and the pages are told that this is the present."""
TOKEN = "a-token"
DRIVER, METER = "gpu.example.com", "gpus"
CLASSES = {
    "gpu": f"device.driver == '{DRIVER}'",
    "gpu-h100": f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].model == 'H100'",
}
DEVICES, PODS = 8, 5
RUNNING = 5
"""Each gang of so many runs."""
CHANGES = 20.0
"""A second."""
DEPARTMENTS, GROUPS = 10, 9
LINES = 105_000
"""Of the books: those of 10,000 gangs."""
REASONS = ("QuotaExceeded", "DevicesBusy", "BehindInQueue", "BudgetExceeded")


class Everything:
    """Reviews that know one token, and let its owner see everything."""

    async def authenticate(self, token: str) -> UserInfo | None:
        return UserInfo(name="ada") if token == TOKEN else None

    async def allows(self, visitor: UserInfo, parsed: Question) -> bool:  # noqa: ARG002 - a port
        return True


class Listed:
    """Lists as an API server answers them at once: of each gang 4,000 pods, and many Events. They are decoded anew."""

    async def pods(self, namespace: str, *, labels: str, fields: str, limit: int) -> PodList:  # noqa: ARG002 - a port
        return await asyncio.to_thread(listings.decode_pods, _TABLE)

    async def events(self, namespace: str, *, fields: str, limit: int) -> EventList:  # noqa: ARG002 - a port
        return await asyncio.to_thread(listings.decode_events, {"items": _EVENTS if fields.endswith("Pod") else []})


_TABLE: Json = {
    "columnDefinitions": [{"name": name} for name in ("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node")],
    "rows": [{"cells": [f"worker-{at}", "1/1", "Running", "0", "5m", "10.0.0.1", "node-0001"]} for at in range(4_000)],
}
_EVENTS: list[Json] = [
    {
        "type": "Normal",
        "reason": "Started",
        "message": "Started container main",
        "involvedObject": {"kind": "Pod", "name": f"worker-{at}"},
        "lastTimestamp": "2026-12-01T00:00:00Z",
        "source": {"component": "kubelet"},
    }
    for at in range(2_000)
]


def cluster(queues: int, gangs: int) -> Iterator[tuple[Kind, Json]]:
    """Yield a cluster: a tree of queues of three levels, gangs in its leaves, and devices that some of them have."""
    yield (
        dashboard_store.METERS,
        {"metadata": _meta(METER), "spec": {"sources": [{"deviceClasses": ["gpu"], "count": {}}]}},
    )
    for name, selector in CLASSES.items():
        yield (
            watched_resources.CLASSES,
            {"metadata": _meta(name), "spec": {"selectors": [{"cel": {"expression": selector}}]}},
        )
    names = list(_tree(queues))
    for name, parent in names:
        yield dashboard_store.QUEUES, _queue(name, parent)
    leaves = [name for name, parent in names if parent.count("-") == 1] or [names[-1][0]]
    for at in range(-(-gangs * PODS // RUNNING // DEVICES)):
        yield watched_resources.NODES, {"metadata": _meta(_node(at)), "status": {"allocatable": {"cpu": "96"}}}
        yield watched_resources.SLICES, _slice(_node(at))
    for number in range(gangs):
        yield dashboard_store.GANGS, gang(number, leaves[number % len(leaves)])
        if number % RUNNING == 0:
            for pod in range(PODS):
                yield watched_resources.CLAIMS, _claim(number, pod)


def _tree(queues: int) -> Iterator[tuple[str, str]]:
    """Yield names of queues and of their parents."""
    for at in range(queues):
        if at < DEPARTMENTS:
            yield f"dept{at}", ""
        elif at < DEPARTMENTS * (1 + GROUPS):
            yield f"dept{at % DEPARTMENTS}-group{at // DEPARTMENTS}", f"dept{at % DEPARTMENTS}"
        else:
            group = f"dept{at % DEPARTMENTS}-group{1 + at // DEPARTMENTS % GROUPS}"
            yield f"{group}-team{at}", group


def _queue(name: str, parent: str) -> Json:
    use = {"meter": METER, "nominal": "64", "used": str(len(name) * 7 % 90), "reserved": "4", "borrowed": "0"}
    budget = {
        "meter": METER,
        "hours": "1000",
        "spent": "300",
        "promised": "100",
        "left": "600",
        "period": "Month",
        "start": "2026-12-01T00:00:00Z",
        "end": "2027-01-01T00:00:00Z",
        "onExhausted": "Hold",
    }
    return {
        "metadata": _meta(name),
        "spec": {"quotas": [{"meter": METER, "nominal": "64"}], **({"parent": parent} if parent else {})},
        "status": {
            "meters": [use],
            "budgets": [budget],
            "gangs": {"pending": 8, "running": 2},
            "conditions": [{"type": "Active", "status": "True", "reason": "Open", "message": "open"}],
        },
    }


def gang(number: int, queue: str, *, version: int = 1) -> Json:
    """Return a gang that runs, or that waits for one of a few reasons."""
    since = _time(NOW - timedelta(seconds=600 + number * 7 + version))
    own: Json = {"pods": PODS, "charges": {METER: str(PODS)}, "queuedSince": since}
    if number % RUNNING == 0:
        own |= {"phase": "Running", "plan": [_planned(number, pod) for pod in range(PODS)]}
    else:
        reason = REASONS[number % len(REASONS)]
        message = f"queue {queue} has {version % 5} {METER} left, the gang needs {PODS}"
        details = {"meter": METER, "left": str(version % 5), "needed": str(PODS)}
        hold = {"reason": reason, "message": message, "details": details, "since": since}
        expected = _time(NOW + timedelta(minutes=number % 500))
        own |= {"phase": "Pending", "position": 1 + number // 900, "hold": hold, "startEstimate": expected}
    name = f"train-{number:05}"
    meta = {**_meta(name, version), "namespace": _team(number), "creationTimestamp": since}
    return {"metadata": meta, "spec": {"queue": queue, "size": PODS}, "status": own}


def _planned(number: int, pod: int) -> Json:
    given = {"request": "gpu", **_device(number, pod)}
    name = f"train-{number:05}-{pod}"
    return {"pod": name, "node": given["pool"], "claims": [{"claim": name, "devices": [given]}]}


def _claim(number: int, pod: int) -> Json:
    name = f"train-{number:05}-{pod}"
    result = {"request": "gpu", **_device(number, pod)}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    return {
        "metadata": {**_meta(name), "namespace": _team(number)},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def _device(number: int, pod: int) -> Json:
    at = number // RUNNING * PODS + pod
    return {"driver": DRIVER, "pool": _node(at // DEVICES), "device": f"gpu-{at % DEVICES}"}


def _slice(node: str) -> Json:
    listed = [
        {
            "name": f"gpu-{at}",
            "attributes": {
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{at // 2:02x}"},
                "model": {"string": "H100"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for at in range(DEVICES)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {"metadata": _meta(node), "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": listed}}


def _node(at: int) -> str:
    return f"node-{at:04}"


def _team(number: int) -> str:
    return f"team-{number % 100}"


def _meta(name: str, version: int = 1) -> Json:
    return {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "creationTimestamp": _time(NOW)}


def _time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def filled(queues: int, gangs: int) -> tuple[Store, dict[int, str]]:
    """Return a store of such a cluster, and the queue of each gang."""
    store = Store(dashboard_store.WATCHED)
    keys: dict[Kind, set[str]] = {kind: set() for kind in store.tables}
    placed: dict[int, str] = {}
    for kind, obj in cluster(queues, gangs):
        keys[kind].add(store.tables[kind].put({"apiVersion": API_VERSION, **obj}))
        if kind == dashboard_store.GANGS:
            placed[len(placed)] = obj["spec"]["queue"]
    for kind, table in store.tables.items():
        assert not table.malformed(), next(iter(table.malformed().values()))
        table.keep_only(keys[kind])
        table.trouble = ""
    store.note_listed()
    return store, placed


async def change(store: Store, placed: dict[int, str]) -> None:
    """Write a gang's status again, `CHANGES` times a second, until cancelled."""
    drawn, version = random.Random(7), 1  # noqa: S311 - the same each time
    while True:
        await asyncio.sleep(1 / CHANGES)
        version += 1
        number = drawn.randrange(len(placed))
        store.tables[dashboard_store.GANGS].put(gang(number, placed[number], version=version))


async def serve(folder: Path, queues: int, gangs: int) -> None:
    """Serve until the process is ended, and say where."""
    url = f"sqlite:///{folder / 'ledger.sqlite3'}"
    await migrations.migrate(url)
    await years.fill(url, LINES)
    store, placed = await asyncio.to_thread(filled, queues, gangs)
    ledger = Ledger(url, years.CLUSTER)
    app_context = AppContext(
        cluster=years.CLUSTER,
        cluster_views=ClusterViews(DashboardStore(store), time.monotonic),
        gang_listings=GangListings(Listed(), time.monotonic),
        reviewer=CachedReviewer(Everything(), time.monotonic),
        ledger=ledger,
        sessions=Sessions(["a secret of thirty-two characters"], timedelta(hours=8)),
        templates=await asyncio.to_thread(Templates),
        proxies=None,
        clock=lambda: NOW,
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(reflector.until_synced(store), name="take the cluster out of the garbage collector's sight")
        tasks.create_task(ledger.keep(), name="keep the books open")
        tasks.create_task(change(store, placed), name="change")
        async with server.serving(Listening(host="127.0.0.1", port=0), app_context) as port:
            sys.stdout.write(f"http://localhost:{port}\n")
            sys.stdout.flush()
            await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.dashboard_site", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--gangs", type=int, default=10_000)
    given = parser.parse_args()
    asyncio.run(serve(given.folder, given.queues, given.gangs))


if __name__ == "__main__":
    main()
