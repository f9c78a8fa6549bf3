"""Clusters whose kube-scheduler heeds no DeviceTaintRule: 1.35 and 1.36 as they come, and 1.37 with the gate off."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane import ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team, found_team

UNSERVED = ("1.36", "1.35", "1.34")
"""Those that serve no rules unless they are told to, in whatever version."""


@pytest.fixture
def team(kubernetes: str) -> Iterator[Team]:
    gates = {} if kubernetes in UNSERVED else {"DRADeviceTaintRules": False}
    with ControlPlane(kubernetes, feature_gates=gates) as control_plane:
        client = control_plane.client()
        fleet.install(client, fleet.demo_fleet([2, 2]))
        client.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
        with Muster(control_plane, fence=[fleet.DRIVER]) as muster:
            muster.start()
            yield found_team(control_plane, Namespace(name="team", client=client), gpus=4, placement="Allocate")


def wait_told(team: Team, status: str, text: str = "") -> None:
    """Wait until the queue says so of the protection of its devices."""
    eventually(lambda: is_told(team, status, text), what=f"DevicesProtected={status} {text}")


def is_told(team: Team, status: str, text: str = "") -> bool:
    queue = team.control_plane.client().get(f"{GROUP}/queues/{team.queue}")
    conditions: list[Any] = queue.get("status", {}).get("conditions", [])
    found = {one["type"]: one for one in conditions}.get("DevicesProtected", {})
    return found.get("status") == status and text in found["message"]


def wait_pinned(team: Team, text: str) -> None:
    """Let a gang start, and see that it is pinned, and told why."""
    team.submit("train", pods=2)
    team.wait_running("train", 2)
    mode, reason = team.placed("train")
    assert mode == "Pin"
    assert text in reason
    events = f"/apis/events.k8s.io/v1/namespaces/{team.namespace.name}/events"
    eventually(
        lambda: "FellBack" in {event["reason"] for event in team.control_plane.client().items(events)},
        what="an Event tells of it",
    )


def test_where_rules_are_not_served_that_is_said_and_gangs_are_pinned(team: Team, kubernetes: str) -> None:
    if kubernetes not in UNSERVED:
        pytest.skip("1.37 serves them whatever the feature gate")
    wait_told(team, "False", "upgrade to Kubernetes 1.37")

    wait_pinned(team, "does not serve DeviceTaintRules")


def test_where_rules_are_not_heeded_the_first_claim_beside_muster_shows_it(team: Team, kubernetes: str) -> None:
    if kubernetes in UNSERVED:
        pytest.skip("1.36 and 1.35 do not serve them without being told to")
    wait_told(team, "True")
    # Times of creation are in whole seconds: a pod of this second may be older than the fence.
    holds_for(1.5, lambda: is_told(team, "True"), what="the fence counts")
    outside = Namespace(name="default", client=team.control_plane.client())
    outside.create(workloads.claim("beside", workloads.device_request()), workloads.pod("beside", claim="beside"))
    outside.bound("beside")

    why = "a claim has device"
    wait_told(team, "False", why)

    wait_pinned(team, why)
    found = team.control_plane.kubectl("get", "devicetaintrules", "--output=name")
    assert "muster-fence" not in found
