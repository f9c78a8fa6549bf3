"""The first gang that waits is told when it is to start, and who passes it does not delay it."""

from datetime import datetime

from tests.controlplane import ControlPlane, fleet
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import fixtures
from tests.e2e.musters import Muster
from tests.e2e.teams import Team, found_team

RUNTIME = "muster.dev/runtime"


hardware = fixtures.hardware(fleet.demo_fleet([4]))
muster = fixtures.muster(scope="function")


def submit(team: Team, name: str, pods: int, runtime: str) -> None:
    team.submit(name, pods=pods, annotations={RUNTIME: runtime})


def wait_estimate(team: Team, name: str, *, after: datetime | None = None) -> datetime:
    """Wait until a gang is told when it is to start, later than a time, and return that."""

    def said() -> datetime | None:
        text = team.status(name).get("startEstimate")
        found = datetime.fromisoformat(text) if text else None
        return found if found is not None and (after is None or found > after) else None

    return eventually(said, what=f"{name} is told when it is to start, after {after}")


def test_short_gangs_pass_the_first_one_that_waits_and_long_ones_do_not(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    team = found_team(control_plane, namespace, gpus=100)
    submit(team, "runs", 2, "1h")
    team.wait_running("runs", 2)
    submit(team, "large", 4, "20s")
    team.wait_held("large", "DevicesBusy")

    estimate = wait_estimate(team, "large")
    assert team.status("large")["startReason"] == f"when gang {team.key('runs')} should have ended"
    told = muster.command("why", f"{namespace.name}/large")
    assert "It is to start at " in told
    assert f"when gang {team.key('runs')} should have ended." in told

    submit(team, "short", 1, "1m")
    submit(team, "long", 1, "2h")
    team.wait_running("short", 1)
    hold = team.wait_held("long", "BehindInOrder")
    assert f"gang {team.key('large')} is ahead of it" in hold["message"]
    assert wait_estimate(team, "large") == estimate, "who has passed it delays it by nothing"

    team.finish("runs")
    team.finish("short")
    team.wait_running("large", 4)
    eventually(lambda: "startEstimate" not in team.status("large"), what="who runs is told nothing of its start")

    # `large` runs longer than it said, and the estimate of who waits for it moves by that.
    first = wait_estimate(team, "long")
    wait_estimate(team, "long", after=first)
    assert team.status("long")["startReason"] == f"when gang {team.key('large')} should have ended"

    team.finish("large")
    team.wait_running("long", 1)
    team.disband()
