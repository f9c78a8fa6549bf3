"""Certificates on the real API server: authorities and leaves are replaced while pods are created, and none is refused.

Ninety days pass in as many seconds: an authority lasts a minute, a leaf eight seconds.
"""

import base64
import time
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography import x509

from tests.controlplane import ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e.musters import SECRET, Muster
from tests.e2e.teams import Team, found_team

pytestmark = pytest.mark.e2e

CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/muster"
AUTHORITY_SECONDS, LEAF_SECONDS = 60.0, 8.0
QUICK = {"authority_days": AUTHORITY_SECONDS / 86_400, "leaf_hours": LEAF_SECONDS / 3_600}


@pytest.fixture
def muster(control_plane: ControlPlane) -> Iterator[Muster]:
    fleet.install(control_plane.client(), fleet.demo_fleet([4]))
    muster = Muster(control_plane, webhook=QUICK)
    control_plane.client().delete(SECRET)
    try:
        yield muster
    finally:
        muster.clean()


def policies(control_plane: ControlPlane) -> dict[str, str]:
    found = control_plane.client().get(CONFIGURATION)["webhooks"]
    return {webhook["name"]: webhook["failurePolicy"] for webhook in found}


def trusted(control_plane: ControlPlane) -> list[x509.Certificate]:
    [*_, webhook] = control_plane.client().get(CONFIGURATION)["webhooks"]
    return x509.load_pem_x509_certificates(base64.b64decode(webhook["clientConfig"]["caBundle"]))


def create_and_delete(team: Team, number: int) -> Any:
    client = team.control_plane.client()
    made = client.create(team.namespace.pods, workloads.pod(f"pod-{number}"))
    client.delete(f"{team.namespace.pods}/pod-{number}?gracePeriodSeconds=0")
    return made


def test_authorities_and_leaves_are_replaced_while_pods_are_created(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    muster.start()
    assert "the webhooks are written, and to be proved" in muster.log
    closed = policies(control_plane)
    assert closed["named.jobs.muster.dev"] == "Fail"
    assert closed["proof.leases.muster.dev"] == "Ignore"
    team = found_team(control_plane, namespace, gpus=4)
    [first] = trusted(control_plane)

    number, most = 0, 1
    deadline = time.monotonic() + 1.25 * AUTHORITY_SECONDS
    while time.monotonic() < deadline:
        made = create_and_delete(team, number)
        assert [gate["name"] for gate in made["spec"]["schedulingGates"]] == ["muster.dev/admission"]
        most = max(most, len(trusted(control_plane)))
        number += 1
        time.sleep(0.2)

    assert most == 2
    assert first not in trusted(control_plane)
    assert muster.log.count("shows a new certificate") >= AUTHORITY_SECONDS / LEAF_SECONDS
    assert "cannot" not in muster.log
    print(f"{number} pods, {muster.log.count('shows a new certificate')} leaves")


def test_what_is_closed_stays_closed_while_muster_is_away_and_when_it_comes_back(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    muster.start()
    team = found_team(control_plane, namespace, gpus=4)
    before = policies(control_plane)
    muster.end()

    muster.start()

    assert "to be proved" not in muster.log
    assert policies(control_plane) == before
    eventually(lambda: create_and_delete(team, 0), what="pods are judged again")
