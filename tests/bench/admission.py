"""Admission from end to end on a real control plane: pods per second from created to bound, with Muster and without.

The same Jobs of four one-GPU pods are submitted to a queued namespace while Muster runs, and to one that Muster does
not see; rounds alternate in one run on one control plane, since machines differ and are busy. Time counts from the
first Job's creation until the last pod is bound, so it includes the job controller, the claims' making and
kube-scheduler in both. One round of each goes before and is not counted.
"""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

from tests.controlplane import ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e.musters import ROLES, Muster
from tests.e2e.teams import found_team, job

GANG = 4
TEMPLATE = "one-gpu"
WAYS = ("muster", "plain")


def measure(*, nodes: int, gangs: int, rounds: int) -> dict[str, Any]:
    """Run all rounds on a fleet of nodes with eight GPUs each."""
    with ControlPlane() as control_plane:
        fleet.install(control_plane.client(), fleet.demo_fleet([8] * nodes))
        with running_muster(control_plane) as muster:
            taken: dict[str, list[float]] = {way: [] for way in WAYS}
            namespaces = {way: namespace_of(control_plane, way, gpus=nodes * 8) for way in WAYS}
            for number in range(rounds + 1):
                for way in WAYS if number % 2 else WAYS[::-1]:
                    seconds = _round(control_plane, namespaces[way], number, gangs)
                    if number:
                        taken[way].append(seconds)
            resident = _resident_mebibytes(muster)
    return _summary(taken, nodes=nodes, gangs=gangs, resident=resident)


def _summary(taken: dict[str, list[float]], *, nodes: int, gangs: int, resident: float) -> dict[str, Any]:
    pods = gangs * GANG
    speeds = {way: pods / median(seconds) for way, seconds in taken.items()}
    return {
        "nodes": nodes,
        "gangs": gangs,
        "pods": pods,
        "seconds": taken,
        "pods_per_second": speeds,
        "ratio": speeds["muster"] / speeds["plain"],
        "muster_resident_mib": resident,
    }


@contextlib.contextmanager
def running_muster(control_plane: ControlPlane, *, apart: bool = False, **settings: Any) -> Iterator[Muster]:
    """Have Muster run on a control plane.

    apart: controller and webhook as two processes. settings: beside those that all tests have.
    """
    muster = Muster(control_plane, **settings) if apart else Muster(control_plane, roles=[*ROLES], **settings)
    try:
        yield muster.start()
    finally:
        muster.clean()


def namespace_of(control_plane: ControlPlane, way: str, *, gpus: int) -> Namespace:
    """Make a namespace: with a queue of so many GPUs for the way `muster`, else one that Muster does not see."""
    client = control_plane.client()
    client.create("/api/v1/namespaces", {"metadata": {"name": f"bench-{way}"}})
    namespace = Namespace(name=f"bench-{way}", client=client)
    namespace.create(workloads.claim_template(TEMPLATE))
    if way == "muster":
        found_team(control_plane, namespace, gpus=gpus, claims=gpus)
    return namespace


def _round(control_plane: ControlPlane, namespace: Namespace, number: int, gangs: int) -> float:
    """Submit the Jobs, wait until all pods are bound, and clear everything away. Return the seconds until bound."""
    client = control_plane.client()
    jobs = f"/apis/batch/v1/namespaces/{namespace.name}/jobs"
    manifests = [job(f"r{number}-{n}", pods=GANG, template=TEMPLATE, annotations={}) for n in range(gangs)]
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda manifest: client.create(jobs, manifest), manifests))
    eventually(
        lambda: sum(bool(pod["spec"].get("nodeName")) for pod in client.items(namespace.pods)) == gangs * GANG,
        what=f"{gangs * GANG} pods of {namespace.name} are bound",
        within=300,
    )
    seconds = time.monotonic() - began
    for manifest in manifests:
        client.delete(f"{jobs}/{manifest['metadata']['name']}?propagationPolicy=Background")
    eventually(
        lambda: not client.items(namespace.pods) and not client.items(namespace.claims),
        what=f"{namespace.name} is empty again",
        within=300,
    )
    return seconds


def _resident_mebibytes(muster: Muster) -> float:
    words = ["ps", "-o", "rss=", "-p", str(muster.program.pid)]
    return int(subprocess.run(words, capture_output=True, check=True).stdout) / 1024
