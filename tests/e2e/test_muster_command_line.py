"""What the command line changes in a cluster, on a real control plane: requests about gangs, queues, and Jobs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import ApiError, ControlPlane, fleet
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team, found_team


@pytest.fixture(scope="module")
def muster(control_plane: ControlPlane) -> Iterator[Muster]:
    """Muster with a node of four GPUs."""
    client = control_plane.client()
    manifests = fleet.demo_fleet([4])
    fleet.install(client, manifests)
    muster = Muster(control_plane).start()
    yield muster
    muster.clean()
    fleet.remove(client, manifests)


def test_kubectl_runs_and_completes_muster_as_its_plugin(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    queue = found_team(control_plane, namespace, gpus=4).queue
    eventually(lambda: queue in muster.command("queue", "list", "-o", "name"), what="the queue is there")
    programs = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {**control_plane.kubectl_environment(control_plane.kubeconfig), "PATH": programs}

    def kubectl(*words: str) -> list[str]:
        command = [*control_plane.kubectl_command, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.splitlines()

    assert f"queue.muster.dev/{queue}" in kubectl("muster", "queue", "list", "-o", "name")
    assert "Usage: kubectl muster gang [OPTIONS] COMMAND [ARGS]..." in kubectl("muster", "gang", "--help")
    assert kubectl("__complete", "muster", "queue", "st")[0] == "stop"
    control_plane.client().delete(f"{GROUP}/queues/{queue}")


def test_what_users_ask_of_gangs_is_done_and_told_with_their_name(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    """One gang is ranked before another, the one that runs is taken back for good reasons, and tried again at once."""
    client, classes = control_plane.client(), [{"name": "low", "value": 1}, {"name": "urgent", "value": 100}]
    team = found_team(control_plane, namespace, gpus=4, requeue={"base": "1h"}, priorityClasses=classes)
    team.submit("first", pods=4)
    team.wait_running("first", 4)
    eventually(lambda: team.gang("first") is not None, what="the object of the gang is there")
    key = f"{namespace.name}/{team.gang('first')['metadata']['name']}"  # type: ignore[index]
    for name in ("second", "third"):
        team.submit(name, pods=4)
        team.wait_held(name, "QuotaExceeded")

    def asked(*words: str) -> str:
        return muster.command("gang", *words, "--namespace", namespace.name)

    assert asked("prioritize", "third", "urgnt").endswith("has no priority class urgnt; it has: urgent, low\n")
    assert asked("prioritize", "third", "urgent").endswith(": it waits with priority class urgent\n")
    eventually(
        lambda: [team.status(name).get("position") for name in ("second", "third")] == [2, 1],
        what="the gang is before the other one",
    )

    assert "is Pending: it holds nothing" in asked("evict", "second")
    told = asked("evict", "first", "--reason", "the node is repaired")
    assert told == f"gang {key}: it is taken back, and tried again after a back-off\n"
    team.wait_running("third", 4)
    hold = team.wait_held("first", "EvictionRequested")
    user = team.status("first")["request"]["by"]
    why = f"{user} asked for it: the node is repaired"
    assert f"It was taken back (EvictionRequested): {why}." in muster.command("why", f"{namespace.name}/first")
    (entry,) = muster.entries(f"{namespace.name}/first", "evict")
    assert entry["reason"] == f"EvictionRequested: {why}"
    assert client.get(f"{team.jobs}/first")["status"].get("failed", 0) == 0

    team.finish("third")
    team.wait_running("second", 4)
    team.finish("second")
    eventually(lambda: team.used("gpus") == (0, 0), what="everything is given back")
    assert team.status("first")["hold"]["details"]["nextTry"] == hold["details"]["nextTry"], "it backs off for an hour"
    assert "its back-off is forgotten" in asked("requeue", "first")
    team.wait_running("first", 4)
    assert f"{user} asked for Requeue at " in asked("show", "first")

    path = f"{GROUP}/namespaces/{namespace.name}/gangs/{team.gang('first')['metadata']['name']}"  # type: ignore[index]
    with pytest.raises(ApiError, match=r"spec\.request\.by: is .somebody., but "):
        client.merge_patch(path, {"spec": {"request": {"id": "x", "action": "Evict", "by": "somebody"}}})

    def notes() -> set[str]:
        events = client.items(f"/apis/events.k8s.io/v1/namespaces/{namespace.name}/events")
        return {f"{event['regarding']['kind']} {event['reason']}: {event['note']}" for event in events}

    gang = f"gang {key}"
    requeued = f"Requeue of {gang}: {user} asked for it; its back-off is forgotten, and it is tried again now"
    told_of = {
        f"Job EvictionRequested: {gang} was evicted as a whole: {why}",
        f"Gang RequestAnswered: {requeued}",
    }
    eventually(lambda: told_of <= notes(), what=lambda: f"Events tell of it: {told_of - notes()}")
    assert "are right" in muster.ledger("verify")
    team.finish("first")
    client.delete(f"{GROUP}/queues/{team.queue}")


@pytest.mark.timeout(600)
def test_a_queue_is_made_and_changed_and_a_job_submitted_to_it_is_gone_as_a_whole(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    client, here = control_plane.client(), ("--namespace", namespace.name)
    root = found_team(control_plane, namespace, gpus=4)
    name = f"small-{namespace.name}"

    words = ("queue", "create", name, "--parent", root.queue, "--quota", "gpus=1", "--borrowing-limit", "gpus=0", *here)
    assert muster.command(*words).endswith(f"queue.muster.dev/{name} created\n")

    def submitted(*more: str) -> str:
        words = ("submit", "--image", "busybox:1.37", "--devices", f"{fleet.DEVICE_CLASS}=2", "--name", "train", *here)
        return muster.command(*words, *more, "--", "sleep", "60")

    def wait_said(words: str, *more: str) -> None:
        """Wait until the webhook has seen what was written of the queue; before it refuses, or takes a dry run."""
        said: list[str] = []

        def is_said() -> bool:
            said[:] = [submitted("--queue", name, *more)]
            return words in said[0]

        eventually(is_said, what=lambda: f"{words}; it says {said}")

    wait_said("NeverFits: the pod needs at least 2 gpus")
    assert client.find(f"{namespace.templates}/train") is None

    assert muster.command("queue", "edit", name, "--quota", "gpus=2").endswith(f"queue.muster.dev/{name} edited\n")
    quotas = client.get(f"{GROUP}/queues/{name}")["spec"]["quotas"]
    assert quotas == [{"meter": "gpus", "nominal": "2", "borrowingLimit": "0"}]

    wait_said("job.batch/train created (server dry run)", "--dry-run", "server")
    assert client.find(f"{namespace.jobs}/train") is None

    told = submitted("--queue", name)
    assert told.splitlines()[:2] == ["resourceclaimtemplate.resource.k8s.io/train created", "job.batch/train created"]
    Team(control_plane, namespace, name).wait_running("train", 1)

    client.delete(f"{namespace.jobs}/train?propagationPolicy=Background")
    eventually(
        lambda: client.find(f"{namespace.templates}/train") is None, what="the template of its claims goes with the Job"
    )
    for queue in (name, root.queue):
        client.delete(f"{GROUP}/queues/{queue}")
