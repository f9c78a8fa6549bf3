"""A cluster without DeviceTaintRules, as 1.36 comes."""

from collections.abc import Iterator

import pytest

from tests.controlplane import ControlPlane, fleet
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team, found_team


@pytest.fixture
def without_rules(kubernetes: str) -> Iterator[ControlPlane]:
    if kubernetes != "1.36":
        pytest.skip("1.37 and later always serve them")
    with ControlPlane(kubernetes) as started:
        yield started


@pytest.fixture
def team(without_rules: ControlPlane) -> Iterator[Team]:
    client = without_rules.client()
    fleet.install(client, fleet.demo_fleet([2, 2]))
    client.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    muster = Muster(without_rules, fence=[fleet.DRIVER]).start()
    yield found_team(without_rules, Namespace(name="team", client=client), gpus=4, placement="Allocate")
    assert "Traceback" not in muster.log
    muster.clean()


def test_it_is_said_that_nothing_can_be_fenced_and_gangs_are_pinned(team: Team) -> None:
    team.submit("train", pods=2)

    team.wait_running("train", 2)
    mode, reason = team.placed("train")
    assert mode == "Pin"
    assert "does not serve DeviceTaintRules" in reason

    def told() -> str:
        queue = team.control_plane.client().get(f"{GROUP}/queues/{team.queue}")
        found = [one["message"] for one in queue["status"]["conditions"] if one["type"] == "DevicesProtected"]
        return found[0] if found else ""

    assert "upgrade to Kubernetes 1.37" in eventually(told, what="the queue says so")
    events = team.control_plane.client().items(f"/apis/events.k8s.io/v1/namespaces/{team.namespace.name}/events")
    assert "FellBack" in {event["reason"] for event in events}
