"""deploy/manifests on the real API server: it takes all of them, and Muster works under their account and no more.

The programs run beside the API server, not in pods: there are no containers. So they listen at an address, and not
behind the Service.
"""

import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.cli.doctor import checks
from tests.controlplane import ApiError, ControlPlane, fleet
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.controlplane.processes import FreePorts
from tests.e2e import musters, neighbours, rights
from tests.e2e.musters import Muster
from tests.e2e.teams import Team, found_team

MANIFESTS = Path(__file__).parents[2] / "deploy" / "manifests"
PODS = "/api/v1/namespaces/muster-system/pods?dryRun=All"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/muster"
CHOSEN = (
    "ledger.cloudNativePG.enabled",
    "webhook.certManager.enabled",
    "serviceMonitor.enabled",
    "alerts.enabled",
    "grafana.enabled",
    "dashboard.enabled",
)
NOWHERE = "postgresql://muster@127.0.0.1:1/muster"


def objects(kind: str) -> list[Any]:
    documents = yaml.safe_load_all((MANIFESTS / "muster.yaml").read_text())
    return [document for document in documents if document["kind"] == kind]


@pytest.fixture
def granted(control_plane: ControlPlane) -> None:
    control_plane.kubectl("apply", "-f", str(MANIFESTS / "rbac.yaml"))


def test_the_api_server_takes_every_manifest(control_plane: ControlPlane, granted: None) -> None:
    dry = ("apply", "--server-side", "--force-conflicts", "--dry-run=server")

    said = control_plane.kubectl(*dry, "-k", str(MANIFESTS))

    for name in ("deployment.apps/muster-webhook", "networkpolicy.networking.k8s.io/muster-controller"):
        assert f"{name} serverside-applied (server dry run)" in said


@pytest.fixture
def others(control_plane: ControlPlane) -> Iterator[None]:
    with neighbours.known(control_plane):
        yield


def test_the_api_server_takes_what_cert_manager_cloudnativepg_and_prometheus_are_asked_for(
    control_plane: ControlPlane, granted: None, others: None
) -> None:
    """Field by field: what they do not know is refused."""
    chosen = [word for value in CHOSEN for word in ("--set", f"{value}=true")]
    named = ("--namespace", "muster-system", "--set", "image.repository=registry.example.com/muster")
    rendered = rights.helm("template", "muster", str(rights.CHART), *named, *chosen)

    said = control_plane.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", input=rendered
    )

    documents = [document for document in yaml.safe_load_all(rendered) if document]
    assert {document["kind"] for document in documents} >= {
        *("Certificate", "Cluster", "Issuer", "PrometheusRule", "ServiceMonitor")
    }
    assert said.count("serverside-applied (server dry run)") == len(documents)


def test_the_pods_keep_to_the_restricted_standard(control_plane: ControlPlane, granted: None) -> None:
    client = control_plane.client()

    for deployment in objects("Deployment"):
        template = deployment["spec"]["template"]
        pod = {"metadata": {"name": "standard", **template["metadata"]}, "spec": template["spec"]}
        assert client.create(PODS, pod)["spec"]["priority"] == 2_000_000_000
        del pod["spec"]["containers"][0]["securityContext"]
        said = eventually(partial(refusal, control_plane, pod), what="a pod that may become root is refused")
        assert 'violates PodSecurity "restricted' in said


def refusal(control_plane: ControlPlane, pod: Any) -> str:
    """Why the API server refuses a pod; empty while it does not."""
    try:
        control_plane.client().create(PODS, pod)
    except ApiError as error:
        return error.message
    return ""


@pytest.fixture
def given(granted: None) -> dict[str, Any]:
    """The settings of the manifests, but for where they cannot hold here."""
    [configured] = objects("ConfigMap")
    settings: dict[str, Any] = tomllib.loads(configured["data"]["muster.toml"])
    with FreePorts() as free:
        port = free.pick()
    here = {
        "log_format": "text",
        "webhook": {**settings["webhook"], "host": "127.0.0.1", "port": port, "service": None, "linger": 0},
        "lease": {**settings["lease"], **musters.SETTINGS["lease"]},
    }
    return {**settings, **here}


def role(control_plane: ControlPlane, folder: Path, name: str, given: dict[str, Any], **more: Any) -> Muster:
    """Return a process of one role, which reaches the API server as the role's account and as nobody else."""
    kubeconfig = rights.kubeconfig(control_plane, folder / name, account=rights.account_of([name]))
    own = {"kubeconfig": str(kubeconfig), "roles": [name]}
    return Muster(control_plane, granting=False, **{**given, **own}, **more)


@pytest.fixture
def webhook(control_plane: ControlPlane, given: dict[str, Any], tmp_path: Path) -> Iterator[Muster]:
    """A webhook that knows no ledger."""
    with role(control_plane, tmp_path, "webhook", given, database=NOWHERE) as webhook:
        yield webhook


@pytest.fixture
def controller(control_plane: ControlPlane, given: dict[str, Any], tmp_path: Path) -> Iterator[Muster]:
    with role(control_plane, tmp_path, "controller", given) as controller:
        yield controller


@pytest.fixture
def team(control_plane: ControlPlane, webhook: Muster, controller: Muster, namespace: Namespace) -> Iterator[Team]:
    """A team with a quota of the four GPUs that there are, once both roles are taken up."""
    with fleet.installed(control_plane.client(), fleet.demo_fleet([4])):
        controller.launch()  # the webhook waits for the authorities that it makes
        webhook.start()
        controller.wait()
        yield found_team(control_plane, namespace, gpus=4)


def test_the_roles_apart_admit_a_gang_under_their_accounts(
    control_plane: ControlPlane, webhook: Muster, controller: Muster, team: Team
) -> None:
    team.submit("train", pods=3)
    team.wait_running("train", 3)

    for muster, user in ((webhook, rights.WEBHOOK_USER), (controller, rights.USER)):
        assert f"user={user} " in muster.log
        assert "; grant " not in muster.log, "a right is missing"
    closed = {hook["name"]: hook["failurePolicy"] for hook in control_plane.client().get(CONFIGURATION)["webhooks"]}
    assert closed["named.jobs.muster.dev"] == "Fail", "the webhook has proved itself"
    assert "are right" in controller.ledger("verify")


def test_the_doctor_finds_nothing_to_mend_until_something_is_wrong(
    control_plane: ControlPlane, webhook: Muster, controller: Muster, team: Team
) -> None:
    code, found = controller.doctor()
    assert code == 0, found
    assert {name: [verdict for verdict, _ in ones] for name, ones in found.items()} == {
        name: ["ok"] for name in ("settings", *checks.CHECKS, "ledger")
    }

    code, found = controller.doctor(by_itself=True)
    assert code == 0, found
    assert {name: [verdict for verdict, _ in ones] for name, ones in found.items()} == {
        name: ["skipped" if name == "feature gates" else "ok"] for name in ("settings", *checks.CHECKS, "ledger")
    }, "as docs/commands.md says of the controller's pod"

    code, found = webhook.doctor(by_itself=True)
    assert code == 0, {name: ones for name, ones in found.items() if ones[0][0] in ("failed", "warning")}
    assert found["rights"][0][0] == "ok", found
    assert len(found["rights"]) == 1, "the webhook may do nothing that only a controller does"

    webhook.end(hard=True)
    code, found = controller.doctor("--account", "system:serviceaccount:muster-system:other")

    assert code == 3, found
    failed = {name: ones[0][1] for name, ones in found.items() if ones[0][0] == "failed"}
    assert failed.keys() == {"webhook", "rights"}, found
    assert "muster-system:other may not" in failed["rights"]


def test_a_queue_is_stopped_and_resumed_by_commands(webhook: Muster, controller: Muster, team: Team) -> None:
    assert "lets no gang in" in controller.command("queue", "stop", team.queue)
    team.submit("train", pods=1)
    waits = f"What would have to change: `muster queue resume {team.queue}`"
    eventually(lambda: waits in controller.command("why", f"{team.namespace.name}/train"), what="it waits")
    assert "stopped: Hold" in controller.command("queue", "show", team.queue)
    assert f"{team.namespace.name}/train" in controller.command("queue", "show", team.queue)

    assert "lets gangs in" in controller.command("queue", "resume", team.queue)

    team.wait_running("train", 1)
