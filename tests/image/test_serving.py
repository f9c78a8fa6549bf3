"""All three roles as containers of the image, each as its Deployment has it, on a real control plane and PostgreSQL.

What cannot be had on one machine is changed: there is no Service, so the webhook is registered by its address, and all
share the machine's network, so each has ports that nobody uses. Limits of memory are not set.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from tests import postgres as postgresql
from tests.controlplane import ControlPlane, fleet
from tests.controlplane.namespaces import Namespace
from tests.controlplane.processes import Family, FreePorts
from tests.e2e import musters, rights, sites
from tests.e2e.teams import GROUP, Team, found_team
from tests.image.containers import HOST, Container, Kubelet
from tests.image.engines import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    webhook: Container
    controller: Container
    dashboard: Container
    team: Team

    @property
    def all(self) -> tuple[Container, ...]:
        return self.webhook, self.controller, self.dashboard


@pytest.fixture
def kubelet(
    engine: Engine, image: str, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kubelet]:
    folder = tmp_path_factory.mktemp("containers")
    family = Family(tmp_path_factory.mktemp("family"))
    yield Kubelet(engine=engine, image=image, control_plane=control_plane, family=family, folder=folder)
    family.end()


@pytest.fixture
def installation(
    kubelet: Kubelet, control_plane: ControlPlane, postgres: postgresql.Server, namespace: Namespace
) -> Iterator[Installation]:
    rights.grant(control_plane, tends=True)
    sites.grant(control_plane)
    hardware = fleet.demo_fleet([4])
    fleet.install(control_plane.client(), hardware)
    secrets = {"muster-ledger": postgres.database()}
    with FreePorts() as free:
        port = free.pick()
    webhook = {"host": HOST, "service": None, "url": f"https://{HOST}:{port}", "linger": 0.0}
    here: dict[str, Any] = {"lease": musters.SETTINGS["lease"], "webhook": webhook}
    with ExitStack() as stack:
        stack.callback(fleet.remove, control_plane.client(), hardware)
        stack.callback(clean, control_plane)
        started = {}
        # The controller first: the webhook waits for the authorities that it makes.
        for role in ("controller", "webhook", "dashboard"):
            started[role] = kubelet.start(
                f"muster-{role}",
                secrets=secrets,
                settings=here if role != "dashboard" else {},
                ports={"webhook": port} if role == "webhook" else {},
            )
            stack.callback(started[role].program.end)
            started[role].wait_ready()
        yield Installation(**started, team=found_team(control_plane, namespace, gpus=4))


def clean(control_plane: ControlPlane) -> None:
    """Remove what Muster has registered, so that nobody waits for it."""
    client = control_plane.client()
    for kind in musters.CONFIGURED:
        client.delete(f"/apis/admissionregistration.k8s.io/v1/{kind}/muster")
    client.delete(musters.SECRET)
    for queue in (client.find(f"{GROUP}/queues") or {"items": []})["items"]:
        client.delete(f"{GROUP}/queues/{queue['metadata']['name']}")


def test_a_gang_is_admitted_shown_and_booked(installation: Installation, control_plane: ControlPlane) -> None:
    team = installation.team
    team.submit("train", pods=3)
    team.wait_running("train", 3)
    team.submit("more", pods=2)
    team.wait_held("more", "QuotaExceeded")

    # What docs/install.md tells people to run in the pods.
    controller = installation.controller
    assert "are right" in controller.asked("muster", "ledger", "verify")
    assert "MUSTER_LEDGER_URL" in controller.asked("muster", "config", "show")
    doctor = controller.asked("muster", "doctor")
    assert "failed" not in doctor, doctor

    admin = control_plane.client().token
    status, page = installation.dashboard.get("pages", "/gangs", token=admin)
    assert status == 200
    assert f"{team.namespace.name}/more" in page
    [style] = {part.split('"')[0] for part in page.split('href="')[1:] if ".css" in part.split('"')[0]}
    assert installation.dashboard.get("pages", style, token=admin)[0] == 200

    for container in installation.all:
        assert "muster_" in container.get("metrics", "/metrics")[1]
        assert "; grant " not in container.log, "a right is missing"

    for container in installation.all:
        container.program.end()
        assert container.program.code == 0, f"{container.name} was told to end:\n{container.log}"
