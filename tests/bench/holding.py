"""Jobs that wait: what they cost the API server when their pods are gated, and when they are held as a whole.

Each way has a control plane of its own, as memory is never given back. One Job has all devices, so that every other one
waits for it; then Jobs of four one-GPU pods are created. Once all of them wait and nothing is written any more, it is
counted what there is: objects by kind, requests since (the creation of the Jobs among them), processor seconds, and the
memory of the API server, etcd and Muster, beside what they had before.
"""

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table

from tests.bench.admission import running_muster
from tests.bench.cluster_accounts import Account
from tests.controlplane import ControlPlane, fleet, workloads
from tests.controlplane.clients import Client
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team, found_team, job

GANG = 4
TEMPLATE = "one-gpu"
WAYS = ("Pod", "Workload")
PROGRAMS = ("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler")
COLLECTIONS = {
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Pod": "/api/v1/namespaces/{}/pods",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims",
    "Gang": GROUP + "/namespaces/{}/gangs",
    "Event": "/api/v1/namespaces/{}/events",
}
QUIET = 10.0
"""Seconds without a request that writes, until which it is waited."""

CREATORS = 8


def measure(*, jobs: int, patience: float) -> dict[str, Any]:
    """Run both ways. patience: seconds until all Jobs of a way have to wait."""
    return {"jobs": jobs, "ways": {way: _measured(way, jobs, patience) for way in WAYS}}


def _measured(way: str, jobs: int, patience: float) -> dict[str, Any]:
    with ControlPlane() as control_plane:
        client = control_plane.client()
        fleet.install(client, fleet.demo_fleet([GANG]))
        # The lease is as the product has it: what is measured is not to be who leads.
        with running_muster(control_plane, lease={}) as muster:
            team = _team(control_plane, client, way)
            client.create(team.jobs, _job("first"))
            team.wait_running("first", GANG, within=120)
            pids = {name: control_plane.pid(name) for name in PROGRAMS} | {"muster": muster.program.pid}
            _rest(client, pids, patience)
            before, resident = Account.read(client, pids), _resident(pids)
            began = time.monotonic()
            with ThreadPoolExecutor(CREATORS) as pool:
                list(pool.map(lambda number: client.create(team.jobs, _job(f"job-{number}")), range(jobs)))
            created = time.monotonic() - began
            _wait_held(client, team, jobs, patience)
            waiting = time.monotonic() - began
            account = _rest(client, pids, patience).since(before)
            objects = {kind: _count(client, path.format(team.namespace.name)) for kind, path in COLLECTIONS.items()}
            return {
                "created_seconds": created,
                "waiting_seconds": waiting,
                "objects": objects,
                "requests": dict(account.requests),
                "seconds": dict(account.seconds),
                "resident_before": resident,
                "resident": _resident(pids),
                "database": _database(muster),
            }


def _team(control_plane: ControlPlane, client: Client, way: str) -> Team:
    client.create("/api/v1/namespaces", {"metadata": {"name": "holding"}})
    namespace = Namespace(name="holding", client=client)
    namespace.create(workloads.claim_template(TEMPLATE))
    team = found_team(control_plane, namespace, gpus=10**6, claims=10**6, holdAt=way)
    # Whether the API server asks about Jobs, a moment later than about pods.
    eventually(lambda: _is_held_at(client, team, way), what=f"Jobs are held at {way}")
    return team


def _is_held_at(client: Client, team: Team, way: str) -> bool:
    made = client.create(f"{team.jobs}?dryRun=All", _job("dry"))
    is_held = bool(made["spec"].get("suspend"))
    return is_held is (way == "Workload")


def _job(name: str) -> dict[str, Any]:
    return job(name, pods=GANG, template=TEMPLATE, annotations={})


def _wait_held(client: Client, team: Team, jobs: int, patience: float) -> None:
    """Wait until every Job's gang is told why it waits, and for a device at that: it is complete then."""
    path = COLLECTIONS["Gang"].format(team.namespace.name)

    def held() -> bool:
        time.sleep(2)  # what is measured is not to be the looking
        if _count(client, path) <= jobs:
            return False
        found = client.items(path)
        return _held(found) == jobs

    eventually(held, what=f"{jobs} Jobs wait", within=patience)


def _held(gangs: Iterable[Mapping[str, Any]]) -> int:
    """Return how many gangs wait for devices."""
    holds = (gang.get("status", {}).get("hold", {}) for gang in gangs)
    return sum(hold.get("reason") == "DevicesBusy" for hold in holds)


def _rest(client: Client, pids: Mapping[str, int], patience: float) -> Account:
    """Wait until nobody writes any more."""
    deadline = time.monotonic() + patience
    found = Account.read(client, pids)
    while time.monotonic() < deadline:
        time.sleep(QUIET)
        later = Account.read(client, pids)
        if not {what for what in later.since(found).requests if not what.startswith("get ")}:
            return later
        found = later
    return found


def _count(client: Client, path: str) -> int:
    """Return how many objects there are, from a list of one of them."""
    listed = client.get(f"{path}?limit=1")
    return len(listed["items"]) + int(listed["metadata"].get("remainingItemCount", 0))


def _resident(pids: Mapping[str, int]) -> dict[str, float]:
    """Return the resident memory of processes, in MiB, from Linux' /proc (proc_pid_status(5))."""
    found = {}
    for name, pid in pids.items():
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        found[name] = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024
    return found


def _database(muster: Muster) -> int:
    """Return the bytes of Muster's ledger: what waits is not in it."""
    return Path(muster.database.partition("///")[2]).stat().st_size


def table(result: dict[str, Any]) -> Group:
    """Show both ways beside each other."""
    gated, held = (result["ways"][way] for way in WAYS)
    made = Table(title=f"{result['jobs']} Jobs of {GANG} that wait")
    for column in ("", "holdAt: Pod", "holdAt: Workload"):
        made.add_column(column, justify="right")
    for kind in COLLECTIONS:
        made.add_row(f"objects: {kind}", *(f"{way['objects'][kind]:,}" for way in (gated, held)))
    made.add_row("objects in all", *(f"{sum(way['objects'].values()):,}" for way in (gated, held)))
    for what in sorted({*gated["requests"], *held["requests"]}):
        made.add_row(f"requests: {what}", *(f"{way['requests'].get(what, 0):,.0f}" for way in (gated, held)))
    made.add_row("requests in all", *(f"{requests(way):,.0f}" for way in (gated, held)))
    for name in (*PROGRAMS, "muster"):
        cells = (f"{way['resident_before'][name]:.0f} → {way['resident'][name]:.0f}" for way in (gated, held))
        made.add_row(f"MiB: {name}", *cells)
        made.add_row(f"processor seconds: {name}", *(f"{way['seconds'][name]:.0f}" for way in (gated, held)))
    made.add_row("seconds until all wait", *(f"{way['waiting_seconds']:.0f}" for way in (gated, held)))
    return Group(made)


def requests(way: Mapping[str, Any]) -> float:
    """Return all requests but calls of webhooks, which the API server makes itself."""
    counted: Mapping[str, float] = way["requests"]
    return sum(number for what, number in counted.items() if not what.startswith("webhook "))
