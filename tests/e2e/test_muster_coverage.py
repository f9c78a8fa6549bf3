"""Coverage on a real control plane: every pod that could get devices passes Muster's webhook."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane import ApiError, ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import fixtures, intruders, teams
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team

POLICY = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/muster-coverage"


hardware = fixtures.hardware(fleet.demo_fleet([2, 2]))
muster = fixtures.muster(coverage=True)


@pytest.fixture
def team(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Team]:
    """A team whose queue is the default of every namespace."""
    with teams.founded(control_plane, namespace, gpus=8, namespaceSelector={}) as team:
        yield team


def wait_covered(team: Team, status: str) -> Any:
    def condition() -> Any:
        found = team.control_plane.client().get(f"{GROUP}/queues/{team.queue}").get("status", {})
        (one,) = [one for one in found.get("conditions", []) if one["type"] == "DevicesProtected"] or [{}]
        return one if one.get("status") == status else None

    return eventually(condition, what=f"DevicesProtected={status}")


def test_where_every_pod_is_seen_muster_allocates_without_a_fence(team: Team) -> None:
    wait_covered(team, "True")

    team.submit("train", pods=4)

    team.wait_running("train", 4)
    mode, reason = team.placed("train")
    assert mode == "Allocate"
    assert "no pod can ask for devices but through a queue" in reason


def test_claims_are_kept_out_of_namespaces_that_the_webhook_spares(team: Team, control_plane: ControlPlane) -> None:
    wait_covered(team, "True")
    spared = Namespace(name="kube-system", client=control_plane.client())

    for manifest in (workloads.claim("c"), workloads.claim_template("t")):
        with pytest.raises(
            ApiError, match=r"devices\.requests: Muster hands out all devices .* of namespace kube-system"
        ):
            spared.create(manifest)
    team.namespace.create(workloads.claim("c"))


def test_a_pod_that_was_there_before_and_may_still_get_devices_is_named(
    team: Team, muster: Muster, control_plane: ControlPlane
) -> None:
    client = control_plane.client()
    muster.end()
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        client.delete(f"/apis/admissionregistration.k8s.io/v1/{kind}/muster")
    early = workloads.pod("early", claim="not-there-yet")
    eventually(lambda: intruders.is_taken(team.namespace, early), what="the API server asks nobody any more")
    team.namespace.create(early)
    muster.start()

    why = "a pod came before the webhook"
    eventually(lambda: why in wait_covered(team, "False")["message"], what="the queue says that a pod is outside")
    told = muster.command("queue", "list", "--format", "json")
    assert f"pod {team.namespace.name}/early came before" in told, "who may read pods is told which"
    team.submit("pinned", pods=1)
    team.wait_running("pinned", 1)
    assert team.placed("pinned")[0] == "Pin"

    client.delete(f"{team.namespace.pods}/early")
    wait_covered(team, "True")


def test_a_second_default_queue_ends_coverage(team: Team, control_plane: ControlPlane) -> None:
    wait_covered(team, "True")
    client = control_plane.client()
    spec = {"default": True, "namespaceSelector": {"matchLabels": {"a": "b"}}}
    body = {"apiVersion": "muster.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "second"}, "spec": spec}
    client.apply(f"{GROUP}/queues/second", body)

    why = "second is marked default"
    eventually(lambda: why in wait_covered(team, "False")["message"], what="the queue says which one")

    client.delete(f"{GROUP}/queues/second")
    wait_covered(team, "True")
