"""Whole gangs are evicted for one of higher priority, and by draining, on a real control plane; they queue again."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane import ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team, found_team, job

PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
URGENT = "muster-preemption-urgent"


@pytest.fixture
def muster(control_plane: ControlPlane) -> Iterator[Muster]:
    """Muster with a node of four GPUs, and a priority that kube-scheduler does not preempt for."""
    client = control_plane.client()
    manifests = fleet.demo_fleet([4])
    fleet.install(client, manifests)
    body = {"metadata": {"name": URGENT}, "value": 1000, "preemptionPolicy": "Never"}
    client.create(PRIORITIES, {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **body})
    muster = Muster(control_plane).start()
    yield muster
    muster.clean()
    client.delete(f"{PRIORITIES}/{URGENT}")
    fleet.remove(client, manifests)


def submit_urgently(team: Team, name: str, pods: int) -> None:
    team.namespace.create(workloads.claim_template("urgent", workloads.device_request(count=1)))
    manifest = job(name, pods=pods, template="urgent", annotations={})
    manifest["spec"]["template"]["spec"]["priorityClassName"] = URGENT
    team.control_plane.client().create(team.jobs, manifest)


def status(team: Team, name: str) -> Any:
    return (team.gang(name) or {}).get("status", {})


def reasons(muster: Muster, team: Team) -> list[str]:
    """What the ledger says of evictions, each once."""
    answer = json.loads(muster.ledger("statement", team.queue, "--format", "json"))
    lines = answer["lines"] if isinstance(answer, dict) else answer
    return sorted({line["reason"].split(":")[0] for line in lines if line["kind"] in {"evict", "release"}})


def test_a_gang_of_higher_priority_evicts_a_lower_one_whole_which_queues_again(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    team = found_team(control_plane, namespace, gpus=4, preemption={"withinQueue": "LowerPriority"})
    team.submit("low", pods=3)
    team.wait_running("low", 3)
    since = eventually(lambda: status(team, "low").get("queuedSince"), what="its status says since when it waits")

    submit_urgently(team, "high", 4)

    team.wait_running("high", 4)
    eventually(lambda: len(team.gated("low")) == 3, what="its victim waits again, whole")
    team.wait_held("low", "QuotaExceeded")
    victim = status(team, "low")
    assert victim["evicted"]["reason"] == "Preempted"
    assert victim["evicted"]["madeRoomFor"] == f"{namespace.name}/{team.gang('high')['metadata']['name']}"  # type: ignore[index]
    assert victim["queuedSince"] == since
    assert "It was taken back (Preempted): gang " in muster.command("why", f"{namespace.name}/low")

    team.finish("high")
    team.wait_running("low", 3)
    eventually(lambda: "evicted" not in status(team, "low"), what="what runs again is not told as evicted")

    client = control_plane.client()
    queue = f"{GROUP}/queues/{team.queue}"
    client.merge_patch(queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
    team.wait_held("low", "QueueStopped")
    eventually(lambda: team.used("gpus") == (0, 0), what="a drained queue uses nothing")
    assert len(team.gated("low")) == 3
    client.merge_patch(queue, {"spec": {"stopPolicy": "None"}})
    team.wait_running("low", 3)

    assert client.get(f"{team.jobs}/low")["status"].get("failed", 0) == 0
    events = client.items(f"/apis/events.k8s.io/v1/namespaces/{namespace.name}/events")
    assert {"Preempted", "QueueDrained"} <= {event["reason"] for event in events}
    assert "are right" in muster.ledger("verify")
    team.finish("low")
    client.delete(queue)
