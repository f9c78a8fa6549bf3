"""Two workers behind the real API server: pods are created all the while, and one of the workers is killed.

A pod that the killed worker was just judging may be refused, as by any process that dies; the next one is not.
"""

import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import ApiError, ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import fixtures
from tests.e2e.musters import Muster
from tests.e2e.teams import Team, found_team

pytestmark = pytest.mark.e2e


plain_port = fixtures.free_port()
hardware = fixtures.hardware(fleet.demo_fleet([4]))


@pytest.fixture
def muster(control_plane: ControlPlane, hardware: None, plain_port: int) -> Iterator[Muster]:
    webhook = {"workers": 2, "linger": 5.0}
    with Muster(control_plane, webhook=webhook, metrics={"port": plain_port}) as muster:
        yield muster


def workers(muster: Muster) -> list[int]:
    """The process ids of all workers but the first."""
    pid = muster.program.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def page(plain_port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{plain_port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def made(team: Team, number: int) -> bool:
    """Create a pod, see that it was judged, and delete it; False when it was refused."""
    client = team.control_plane.client()
    try:
        pod = client.create(team.namespace.pods, workloads.pod(f"pod-{number}"))
    except ApiError:
        return False
    assert [gate["name"] for gate in pod["spec"]["schedulingGates"]] == ["muster.dev/admission"]
    client.delete(f"{team.namespace.pods}/pod-{number}?gracePeriodSeconds=0")
    return True


def test_a_worker_is_killed_and_comes_back_while_pods_are_created(
    control_plane: ControlPlane, muster: Muster, plain_port: int, namespace: Namespace
) -> None:
    muster.start()
    team = found_team(control_plane, namespace, gpus=4)
    eventually(lambda: "muster_webhook_workers 2.0" in page(plain_port), what="both workers are ready")
    [worker] = workers(muster)
    results = [made(team, number) for number in range(20)]
    assert all(results)

    os.kill(worker, signal.SIGKILL)
    number = len(results)
    while "muster_webhook_workers_lost_total 1.0" not in page(plain_port):
        results.append(made(team, len(results)))
    while "muster_webhook_workers 2.0" not in page(plain_port):
        results.append(made(team, len(results)))

    refused = [at for at, well in enumerate(results) if not well]
    print(f"{len(results)} pods, refused: {refused}, the worker was killed before {number}")
    assert len(refused) <= 2, "one for each connection that the API server had to the killed worker"
    assert workers(muster) != [worker]
    counted = [line for line in page(plain_port).splitlines() if line.startswith("muster_review_seconds_count")]
    assert any('worker="1"' in line for line in counted)


def test_pods_are_judged_until_all_workers_have_drained(
    control_plane: ControlPlane, muster: Muster, plain_port: int, namespace: Namespace
) -> None:
    muster.start()
    team = found_team(control_plane, namespace, gpus=4)
    eventually(lambda: "muster_webhook_workers 2.0" in page(plain_port), what="both workers are ready")

    os.kill(muster.program.pid, signal.SIGTERM)
    lingering = [made(team, number) for number in range(5)]
    eventually(lambda: muster.program.ended, what="all workers have ended")

    assert all(lingering)
    assert muster.log.count("stopped") == 2
    assert not made(team, 99)
