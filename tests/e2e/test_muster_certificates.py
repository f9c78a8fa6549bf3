"""Certificates on the real API server: authorities and leaves are replaced while pods are created, and none is refused.

Ninety days pass in as many seconds: an authority lasts a minute, a leaf eight seconds. Where cert-manager makes them, a
stand-in does what its documentation says of it: the files of a mounted Secret are replaced all at once, and cainjector
writes an authority into whatever carries its annotation.
"""

import base64
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509

from admission.webhook.tls import certificate
from admission.webhook.tls.certificate import Authority
from tests.controlplane import ControlPlane, fleet, workloads
from tests.controlplane.clients import ApiError, Client
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e.musters import SECRET, Muster
from tests.e2e.teams import Team, found_team

pytestmark = pytest.mark.e2e

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CONFIGURATION = f"{REGISTRATION}/mutatingwebhookconfigurations/muster"
WEBHOOK_PAGE = Path(__file__).parents[2] / "docs" / "webhook.md"
AUTHORITY_SECONDS, LEAF_SECONDS = 60.0, 8.0
FLEET = fleet.demo_fleet([4])
QUICK = {"authority_days": AUTHORITY_SECONDS / 86_400, "leaf_hours": LEAF_SECONDS / 3_600}


@pytest.fixture
def muster(control_plane: ControlPlane) -> Iterator[Muster]:
    client = control_plane.client()
    with fleet.installed(client, FLEET), Muster(control_plane, webhook=QUICK) as muster:
        client.delete(SECRET)
        yield muster


def policies(control_plane: ControlPlane) -> dict[str, str]:
    found = control_plane.client().get(CONFIGURATION)["webhooks"]
    return {webhook["name"]: webhook["failurePolicy"] for webhook in found}


def trusted(control_plane: ControlPlane) -> list[x509.Certificate]:
    [*_, webhook] = control_plane.client().get(CONFIGURATION)["webhooks"]
    return x509.load_pem_x509_certificates(base64.b64decode(webhook["clientConfig"]["caBundle"]))


def segments(control_plane: ControlPlane) -> set[str]:
    """Return the first parts of the paths that are registered."""
    found = control_plane.client().get(CONFIGURATION)["webhooks"]
    return {urlsplit(webhook["clientConfig"]["url"]).path.rpartition("/")[0] for webhook in found}


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

    named = segments(control_plane)
    assert len(named) == 1
    assert "" not in named

    number, most, end = 0, 1, float("inf")
    deadline = time.monotonic() + 2 * AUTHORITY_SECONDS
    while time.monotonic() < end:
        assert time.monotonic() < deadline, "an authority is trusted for ever"
        made = create_and_delete(team, number)
        assert [gate["name"] for gate in made["spec"]["schedulingGates"]] == ["muster.dev/admission"]
        known = trusted(control_plane)
        most = max(most, len(known))
        named |= segments(control_plane)
        if first not in known:
            end = min(end, time.monotonic() + LEAF_SECONDS)
        number += 1
        time.sleep(0.2)

    assert len(named) > 1, "paths are replaced as authorities are"
    assert "" not in named
    assert all(segment not in muster.log for segment in named)
    assert most == 2
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


def test_plain_paths_are_answered_while_a_muster_of_before_has_registered_them(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    """As when the release is rolled back; docs/webhook.md says how to write them before."""
    muster.start()
    team, client = found_team(control_plane, namespace, gpus=4), control_plane.client()
    create_and_delete(team, 0)
    [segment] = segments(control_plane)
    [plain] = re.findall(r"sed -E '([^']+)'", WEBHOOK_PAGE.read_text())
    muster.program.end()  # the controller, which may be about to register the namespace of the new queue

    stored = [json.dumps(client.get(path)) for path in (CONFIGURATION, CONFIGURATION.replace("mutating", "validating"))]
    written = subprocess.run(["sed", "-E", plain], input="\n".join(stored), capture_output=True, text=True, check=True)

    for line in written.stdout.splitlines():
        control_plane.kubectl("replace", "-f", "-", input=line)

    assert segment not in written.stdout
    assert segments(control_plane) == {""}
    number = 1
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:  # until every cache of the API server has it
        made = create_and_delete(team, number)
        assert [gate["name"] for gate in made["spec"]["schedulingGates"]] == ["muster.dev/admission"]
        number += 1
    assert segments(control_plane) == {""}


INJECT = "cert-manager.io/inject-ca-from"
CERTIFICATE = "muster-system/muster-webhook-tls"
DAY = timedelta(days=1)


def mount(folder: Path, signer: Authority) -> None:
    """Replace what a kubelet shows of the Secret: a link to a folder of its own, as it does."""
    made = certificate.issue(signer, ["127.0.0.1"], now=datetime.now(UTC), validity=DAY)
    version = folder / f"..{time.time_ns()}"
    version.mkdir()
    for name, content in {"tls.crt": made.certificate, "tls.key": made.key, "ca.crt": made.authority}.items():
        (version / name).write_bytes(content)
    (folder / "..new").symlink_to(version.name)
    (folder / "..new").replace(folder / "..data")
    for name in ("tls.crt", "tls.key", "ca.crt"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data", name))


@contextmanager
def injecting(client: Client, bundle: list[bytes]) -> Iterator[None]:
    """Write the authorities, whatever they are at the time, into all that asks for those of the Certificate."""
    over = threading.Event()

    def inject() -> None:
        while not over.wait(0.2):
            for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
                for found in client.items(f"{REGISTRATION}/{kind}"):
                    if found["metadata"].get("annotations", {}).get(INJECT) == CERTIFICATE:
                        _write(client, f"{REGISTRATION}/{kind}/{found['metadata']['name']}", found, bundle)

    thread = threading.Thread(target=inject)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _write(client: Client, path: str, found: dict[str, Any], bundle: Sequence[bytes]) -> None:
    encoded = base64.b64encode(b"".join(bundle)).decode()
    configs = [webhook["clientConfig"] for webhook in found["webhooks"]]
    if all(config.get("caBundle") == encoded for config in configs):
        return
    for config in configs:
        config["caBundle"] = encoded
    with suppress(ApiError):  # written by somebody else meanwhile, or gone: at the next look
        client.replace(path, found)


def test_what_cert_manager_makes_and_injects_is_shown_and_followed(
    control_plane: ControlPlane, namespace: Namespace, tmp_path: Path
) -> None:
    client = control_plane.client()
    fleet.install(client, FLEET)
    first, second = (certificate.authority(now=datetime.now(UTC), validity=DAY) for _ in range(2))
    mount(tmp_path, first)
    files = {"certificate": str(tmp_path / "tls.crt"), "key": str(tmp_path / "tls.key"), "inject": CERTIFICATE}
    muster, bundle = Muster(control_plane, webhook=files), [first.certificate]
    try:
        with injecting(client, bundle):
            muster.start()
            eventually(lambda: policies(control_plane)["named.jobs.muster.dev"] == "Fail", what="the webhook is proved")
            team = found_team(control_plane, namespace, gpus=4)
            create_and_delete(team, 0)

            # The overlap that docs/webhook.md asks for: the new authority is trusted before a leaf of it is shown.
            bundle.append(second.certificate)
            eventually(lambda: len(trusted(control_plane)) == 2, what="both authorities are injected")
            mount(tmp_path, second)
            shown = muster.log.count("shows a new certificate")
            number = 1
            while muster.log.count("shows a new certificate") == shown:
                create_and_delete(team, number)
                number += 1
            del bundle[0]
            eventually(lambda: len(trusted(control_plane)) == 1, what="the old authority is gone")
            made = create_and_delete(team, number)

        assert [gate["name"] for gate in made["spec"]["schedulingGates"]] == ["muster.dev/admission"]
        assert set(client.get(SECRET)["data"]) == {"paths"}
        assert "cannot" not in muster.log
    finally:
        muster.clean()
        fleet.remove(client, FLEET)
