"""Muster on a real control plane: the webhook, admission as a whole, and what survives which death."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane import ApiError, ControlPlane, fleet, workloads
from tests.controlplane.clients import Client
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for
from tests.controlplane.processes import tail
from tests.e2e import fixtures, teams
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team, found_team

NEVER_START = {workloads.NEVER_START: "true"}


hardware = fixtures.hardware(fleet.demo_fleet([4, 1]))


@pytest.fixture
def stopped(control_plane: ControlPlane, hardware: None) -> Iterator[Muster]:
    """An installation that is not running yet. Claims of earlier tests, which are deleted late, hold no devices.

    A plan that was made beside them is not what kube-scheduler would take once they are gone.
    """
    client = control_plane.client()
    eventually(lambda: not _allocated(client), what="the devices of earlier tests are free")
    with Muster(control_plane) as muster:
        yield muster


@pytest.fixture
def muster(stopped: Muster) -> Muster:
    return stopped.start()


@pytest.fixture
def team(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Team]:
    """A team with a quota of four GPUs."""
    with teams.founded(control_plane, namespace, gpus=4) as team:
        yield team


def _allocated(client: Client) -> list[str]:
    claims = client.items("/apis/resource.k8s.io/v1/resourceclaims")
    return [claim["metadata"]["name"] for claim in claims if claim.get("status", {}).get("allocation")]


def test_a_gang_that_fits_starts_whole_is_settled_and_released(team: Team, muster: Muster) -> None:
    team.submit("train", pods=3)

    team.wait_running("train", 3)
    eventually(lambda: team.used("gpus") == (0, 3), what="three GPUs are settled as used")
    team.finish("train")
    eventually(lambda: team.used("gpus") == (0, 0), what="they are released")

    kinds = [line["kind"] for line in muster.statement(team.queue) if line["meter"] == "gpus"]
    assert kinds[:3] == ["grant", "reserve", "settle"]
    # Claims are allocated and freed one by one, so either may come in parts.
    assert set(kinds[3:]) <= {"settle", "release"}
    assert kinds[-1] == "release"
    assert muster.wrong_books() is None


def test_a_gang_over_its_quota_is_held_with_the_numbers(team: Team) -> None:
    team.submit("big", pods=5)

    hold = team.wait_held("big", "QuotaExceeded")

    assert hold["details"]["left"] == "4"
    assert hold["details"]["needed"] == "5"
    holds_for(2, lambda: len(team.gated("big")) == 5, what="no pod of it starts")


def test_a_gang_inside_its_quota_that_cannot_be_allocated_together_waits_whole_until_it_can(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    """Four GPUs are free on one node and one on the other. Counting alone would let every one of these in."""
    team = found_team(control_plane, namespace, gpus=100)
    team.submit("first", pods=1, gpus=3)
    team.wait_running("first", 1)
    team.submit("pair", pods=2, gpus=2)
    team.submit("never", pods=2, gpus=3)

    busy = team.wait_held("pair", "DevicesBusy")
    assert "first" in busy["message"]
    never = team.wait_held("never", "NoFeasiblePlacement")
    assert "3 devices" in never["message"]
    holds_for(2, lambda: len(team.gated("pair")) == 2, what="not one pod of it starts")
    team.finish("first")

    team.wait_running("pair", 2)
    assert len(team.gated("never")) == 2
    team.disband()


def test_what_may_not_enter_is_refused_with_the_mend(team: Team, control_plane: ControlPlane) -> None:
    client = control_plane.client()

    def refused(**labels: str) -> str:
        with pytest.raises(ApiError) as caught:
            client.create(team.namespace.pods, workloads.pod("refused", labels=labels))
        return str(caught.value)

    assert "UnknownQueue" in refused(**{"muster.dev/queue": "no-such-queue"})
    other = found_team(control_plane, Namespace(name="default", client=client), gpus=1)
    assert "QueueNotOpen" in refused(**{"muster.dev/queue": other.queue})
    other.disband()


def test_nobody_but_the_controller_opens_a_gate_or_changes_the_queue(team: Team, control_plane: ControlPlane) -> None:
    client = control_plane.client()
    team.submit("held", pods=5)
    team.wait_held("held", "QuotaExceeded")
    path = f"{team.namespace.pods}/{team.gated('held')[0]}"

    tries: list[list[dict[str, Any]]] = [
        [{"op": "remove", "path": "/spec/schedulingGates"}],
        [{"op": "replace", "path": "/metadata/labels/muster.dev~1queue", "value": "another"}],
        [{"op": "add", "path": "/metadata/labels/muster.dev~1gang", "value": "another"}],
    ]
    for operations in tries:
        with pytest.raises(ApiError, match="GateTampering"):
            client.json_patch(path, operations)


@pytest.mark.parametrize("gate", [1, 2, 3])
def test_killed_between_reservation_and_gates_nothing_is_lost_or_granted_twice(
    control_plane: ControlPlane, stopped: Muster, namespace: Namespace, gate: int
) -> None:
    stopped.start(killed_at=f"gate:{gate}")
    team = found_team(control_plane, namespace, gpus=4)
    team.submit("train", pods=3)
    eventually(lambda: stopped.program.ended, what="the controller is dead")
    reserved = [line for line in stopped.statement(team.queue) if line["kind"] == "reserve"]
    assert reserved, "the reservation was committed before the first gate"
    assert len(team.gated("train")) >= 3 - (gate - 1)

    stopped.start()

    team.wait_running("train", 3)
    eventually(lambda: team.used("gpus") == (0, 3), what="the gang is settled")
    lines = stopped.statement(team.queue)
    told = [(line["kind"], line["reason"]) for line in lines]
    assert [line for line in lines if line["kind"] == "reserve"] == reserved, f"{told}\n{tail(stopped.program.log, 60)}"
    assert stopped.wrong_books() is None
    team.disband()


def test_while_muster_is_down_queued_namespaces_wait_and_others_do_not(
    team: Team, muster: Muster, control_plane: ControlPlane
) -> None:
    client = control_plane.client()
    # Templates wait for Muster, too.
    team.namespace.create(workloads.claim_template("gpus-1", workloads.device_request(count=1)))
    muster.end(hard=True)

    with pytest.raises(ApiError, match="failed calling webhook"):
        client.create(team.namespace.pods, workloads.pod("refused"))
    client.create("/api/v1/namespaces/default/pods", workloads.pod("unaffected"))
    client.delete("/api/v1/namespaces/default/pods/unaffected")

    team.submit("waits", pods=2)
    holds_for(2, lambda: not team.pods("waits"), what="the Job has no pods")
    muster.start()
    team.wait_running("waits", 2)


@pytest.mark.timeout(300, func_only=True)
def test_an_api_server_that_is_killed_in_the_middle_is_survived(
    team: Team, muster: Muster, control_plane: ControlPlane
) -> None:
    """Muster is back within seconds; the fake kubelets may take a minute."""
    team.submit("before", pods=2)
    team.wait_running("before", 2)
    control_plane.restart_apiserver(hard=True)

    team.submit("after", pods=2)

    team.wait_running("after", 2, within=150)
    eventually(lambda: team.used("gpus") == (0, 4), what="all is settled")
    assert not muster.program.ended
    assert muster.wrong_books() is None


def test_a_gang_that_does_not_start_in_time_is_evicted_whole_and_queues_again(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    """Four pods and two evictions are more than the Job's default backoffLimit of six would forgive."""
    team = found_team(control_plane, namespace, gpus=4, startTimeout="3s", requeue={"base": "2s", "max": "4s"})
    team.submit("stuck", pods=4, annotations=NEVER_START, backoff_limit=6)

    eventually(
        lambda: team.status("stuck").get("evictions", 0) >= 3,
        what="it is evicted, tried again after a while, and evicted again",
        within=90,
    )

    kinds = [line["kind"] for line in muster.statement(team.queue)]
    assert kinds.count("reserve") >= 3
    job = control_plane.client().get(f"{team.jobs}/stuck")
    assert job["status"].get("failed", 0) == 0
    assert not [c for c in job["status"].get("conditions", []) if c["type"] == "Failed" and c["status"] == "True"]
    assert muster.wrong_books() is None
    team.disband()


def test_flaws_of_queues_and_meters_stand_in_their_conditions(muster: Muster, control_plane: ControlPlane) -> None:
    """They are refused when they are written, but may have been while Muster was away."""
    client = control_plane.client()
    flawed = {
        "queues/cycle-a": _body("Queue", "cycle-a", {"parent": "cycle-b"}),
        "queues/cycle-b": _body("Queue", "cycle-b", {"parent": "cycle-a"}),
        "meters/bad-cel": _body(
            "Meter", "bad-cel", {"sources": [{"deviceClasses": ["x"], "count": {}, "selector": "device.nonsense =="}]}
        ),
    }
    with pytest.raises(ApiError, match=r"spec\.sources\[0\]\.selector"):
        client.apply(f"{GROUP}/meters/bad-cel", flawed["meters/bad-cel"])
    muster.end()
    for path, body in flawed.items():
        client.apply(f"{GROUP}/{path}", body)
    muster.start()

    def condition(path: str) -> Any:
        conditions = client.get(f"{GROUP}/{path}").get("status", {}).get("conditions", [])
        return conditions[0] if conditions and conditions[0]["status"] == "False" else None

    queue = eventually(lambda: condition("queues/cycle-a"), what="the cycle is told")
    meter = eventually(lambda: condition("meters/bad-cel"), what="the bad CEL is told")
    for path in flawed:
        client.delete(f"{GROUP}/{path}")

    assert "spec.parent" in queue["message"]
    assert "spec.sources[0].selector" in meter["message"]


def test_the_leader_of_an_earlier_epoch_is_deposed(team: Team, muster: Muster, control_plane: ControlPlane) -> None:
    """A second installation over the same ledger takes over when the first is killed; epochs only grow."""
    first = muster.log.split("epoch=")[1].split()[0]
    muster.end(hard=True)
    muster.start()
    second = muster.log.split("epoch=")[1].split()[0]

    assert int(second) > int(first)
    team.submit("train", pods=1)
    team.wait_running("train", 1)


def _body(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
