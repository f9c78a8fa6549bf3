"""Queues that are deleted on a real control plane while their gangs hold devices."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from admission.api.values import names
from tests.controlplane import ControlPlane, fleet
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for
from tests.e2e import fixtures
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team, found_team

LAB = f"{GROUP}/queues/lab"


hardware = fixtures.hardware(fleet.demo_fleet([8]))  # more than there is quota
muster = fixtures.muster(scope="function")


@pytest.fixture
def teams(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[tuple[Team, Team]]:
    """Two teams without quota of their own, in queues under one that has four GPUs."""
    client = control_plane.client()
    quotas = [{"meter": "claims", "nominal": "100"}, {"meter": "gpus", "nominal": "4"}]
    lab = {"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": "lab"}, "spec": {"quotas": quotas}}
    client.apply(LAB, lab)
    other = replace(namespace, name=f"{namespace.name}-other")
    client.create("/api/v1/namespaces", {"metadata": {"name": other.name}})
    yield (
        found_team(control_plane, namespace, gpus=0, parent="lab"),
        found_team(control_plane, other, gpus=0, parent="lab"),
    )
    other.empty()
    client.delete(f"/api/v1/namespaces/{other.name}")


def test_a_queue_that_is_deleted_while_its_gang_borrows_stays_under_the_next_leader_until_the_gang_is_done(
    control_plane: ControlPlane, muster: Muster, teams: tuple[Team, Team]
) -> None:
    team, other = teams
    client = control_plane.client()
    path = f"{GROUP}/queues/{team.queue}"
    team.submit("train", pods=3)
    team.wait_running("train", 3)
    eventually(lambda: team.used("gpus") == (0, 3), what="its GPUs are settled as used")
    assert client.get(path)["metadata"]["finalizers"] == [names.IN_USE]

    client.delete(path)
    muster.end(hard=True)
    muster.start()

    condition = eventually(lambda: terminating(client.get(path)), what="the queue says that it is being deleted")
    assert condition["message"].endswith(f"a gang of queue {team.queue}"), "everybody may read it, so it names no gang"
    assert f"{team.namespace.name}/train" in muster.command("queue", "show", team.queue)
    other.submit("next", pods=2)
    hold = other.wait_held("next", "QuotaExceeded")
    assert hold["details"]["left"] == "1"
    team.submit("late", pods=1)
    assert "is being deleted" in team.wait_held("late", "QueueInactive")["message"]
    holds_for(2, lambda: client.find(path) is not None and len(other.gated("next")) == 2, what="all stays as it is")

    team.finish("train")
    eventually(lambda: client.find(path) is None, what="the queue goes when its gang is done")
    other.wait_running("next", 2)
    assert muster.wrong_books() is None
    team.disband()
    other.disband()


def test_queues_that_nobody_uses_go_at_once_and_all_of_them_by_the_documented_command_without_muster(
    control_plane: ControlPlane, muster: Muster, teams: tuple[Team, Team]
) -> None:
    team, other = teams
    control_plane.kubectl("delete", "queues.muster.dev", team.queue, "--timeout=90s")

    muster.end()
    control_plane.kubectl("delete", "queues.muster.dev", other.queue, "lab", "--wait=false")
    client = control_plane.client()
    assert client.get(LAB)["metadata"]["deletionTimestamp"]
    patch = '{"metadata":{"finalizers":null}}'
    for name in control_plane.kubectl("get", "mq", "-o", "name").split():
        control_plane.kubectl("patch", name, "--type=merge", "-p", patch)

    assert client.find(LAB) is None
    assert client.find(f"{GROUP}/queues/{other.queue}") is None


def terminating(queue: Any) -> Any | None:
    conditions = queue.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["reason"] == "Terminating"), None)
