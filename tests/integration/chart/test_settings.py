"""What the chart renders of settings, ledgers and certificates is what Muster reads."""

import json

import pytest

from admission.settings.schema import fields
from admission.webhook import server
from tests.integration.chart.charts import (
    DASHBOARD,
    NAMESPACE,
    ROLES,
    Helm,
    checksum,
    config,
    database_of,
    pod,
    rendered,
)

pytestmark = pytest.mark.timeout(120, func_only=True)


def test_muster_reads_the_settings_that_are_rendered(helm: Helm) -> None:
    changes = ("settings.controller.steps=2000000", 'settings.fence=["gpu.example.com"]', "settings.webhook.linger=2.5")

    usual, changed = config(rendered(helm)), config(rendered(helm, *changes))

    assert usual.lease.namespace == NAMESPACE
    assert usual.webhook.service == f"{NAMESPACE}/muster-webhook:443"
    assert (usual.webhook.host, usual.metrics.host) == ("0.0.0.0", "0.0.0.0")  # noqa: S104 - compared
    assert (changed.controller.steps, changed.fence, changed.webhook.linger) == (2_000_000, ("gpu.example.com",), 2.5)


@pytest.mark.parametrize("role", ROLES)
def test_muster_listens_where_its_pods_are_asked(helm: Helm, role: str) -> None:
    objects = rendered(helm, "webhook.workers=3", DASHBOARD)
    [container] = pod(objects, role)["containers"]
    settings = config(objects, role)

    assert container["args"] == ["serve"]
    assert settings.roles == (role,)
    assert settings.webhook.workers == (3 if role == "webhook" else 1)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert settings.metrics.port == ports["metrics"]
    assert settings.webhook.port == ports.get("webhook", 0)
    assert settings.dashboard.port == ports.get("pages", 8080)


@pytest.mark.parametrize("role", ROLES)
def test_pods_are_replaced_for_settings_that_need_it_and_for_no_others(helm: Helm, role: str) -> None:
    live = [path for path, field in fields().items() if field.live]
    given = {"log_level": "debug", "controller.node_order": "least-stranded"}
    needed, foreign = "settings.webhook.reviews=7", "settings.dashboard.session_hours=7"
    if role == "dashboard":
        needed, foreign = foreign, needed

    usual = checksum(rendered(helm, DASHBOARD), role)

    changed = (*(f"settings.{path}={given.get(path, 7)}" for path in live), foreign)
    assert usual == checksum(rendered(helm, DASHBOARD, *changed), role)
    assert usual != checksum(rendered(helm, DASHBOARD, needed), role)


@pytest.mark.parametrize("role", ROLES)
def test_service_variables_are_not_injected_into_pods(helm: Helm, role: str) -> None:
    """kubelet's MUSTER_WEBHOOK_PORT=tcp://… would look like a setting."""
    assert pod(rendered(helm, DASHBOARD), role)["enableServiceLinks"] is False


def test_a_webhook_has_the_time_to_finish_what_is_under_way(helm: Helm) -> None:
    drain = server.Settings().drain.total_seconds()

    for linger in (0, 10, 40.5):
        grace = pod(rendered(helm, f"settings.webhook.linger={linger}"), "webhook")["terminationGracePeriodSeconds"]
        assert grace > linger + drain


def test_only_the_controller_knows_the_database(helm: Helm) -> None:
    objects = rendered(helm, "ledger.secret=books", "ledger.certificates=books-ca")

    [webhook], [controller] = (pod(objects, role)["containers"] for role in ("webhook", "controller"))
    assert not any("valueFrom" in variable for variable in webhook["env"])
    assert {
        "name": fields()["ledger.url"].variable,
        "valueFrom": {"secretKeyRef": {"name": "books", "key": "url"}},
    } in controller["env"]
    volumes = {volume["name"]: volume for volume in pod(objects, "controller")["volumes"]}
    assert volumes["ledger-certificates"]["secret"] == {"secretName": "books-ca"}


def test_a_ledger_in_a_file_as_it_comes_has_one_controller_at_a_time(helm: Helm) -> None:
    objects = rendered(helm)

    controller = objects["Deployment", "muster-controller"]["spec"]
    assert (controller["replicas"], controller["strategy"]) == (1, {"type": "Recreate"})
    mounts = {
        mount["name"]: mount["mountPath"] for mount in pod(objects, "controller")["containers"][0]["volumeMounts"]
    }
    assert config(objects).ledger.url == f"sqlite:///{mounts['ledger']}/ledger.sqlite3"
    assert objects["PersistentVolumeClaim", "muster-ledger"]["spec"]["resources"]["requests"] == {"storage": "1Gi"}


def test_books_that_cloudnativepg_keeps_are_found_by_the_secret_that_it_makes(helm: Helm) -> None:
    chosen = ("ledger.cloudNativePG.enabled=true", 'ledger.cloudNativePG.spec={"instances": 3, "logLevel": "debug"}')

    objects = rendered(helm, DASHBOARD, *chosen)

    cluster = objects["Cluster", "muster-ledger"]
    assert cluster["spec"] == {
        "instances": 3,
        "logLevel": "debug",
        "storage": {"size": "10Gi"},
        "bootstrap": {"initdb": {"database": "muster", "owner": "muster"}},
    }
    assert cluster["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    for role in ("controller", "dashboard"):
        assert database_of(objects, role) == {"name": "muster-ledger-app", "key": "uri"}
    assert ("PersistentVolumeClaim", "muster-ledger") not in objects
    assert objects["Deployment", "muster-controller"]["spec"]["replicas"] == 2


@pytest.mark.parametrize("role", ["webhook", "controller"])
def test_the_webhook_takes_the_controllers_account_alone_for_the_controller(helm: Helm, role: str) -> None:
    objects = rendered(helm)

    account = pod(objects, "controller")["serviceAccountName"]
    assert config(objects, role).controller.user == f"system:serviceaccount:{NAMESPACE}:{account}"


def test_cert_manager_makes_the_certificate_that_muster_shows(helm: Helm) -> None:
    own = rendered(helm, "webhook.certManager.enabled=true")
    corporate = {"name": "corporate", "kind": "ClusterIssuer"}
    others = rendered(helm, "webhook.certManager.enabled=true", f"webhook.certManager.issuer={json.dumps(corporate)}")

    for objects in (own, others):
        certificate, settings = objects["Certificate", "muster-webhook"], config(objects, "webhook").webhook
        assert settings.inject == f"{NAMESPACE}/{certificate['metadata']['name']}"
        assert settings.service == f"{NAMESPACE}/muster-webhook:443"
        assert certificate["spec"]["dnsNames"] == [f"muster-webhook.{NAMESPACE}.svc"]
        webhook = pod(objects, "webhook")
        [volume] = [one["secret"]["secretName"] for one in webhook["volumes"] if one["name"] == "certificate"]
        [mount] = [m["mountPath"] for m in webhook["containers"][0]["volumeMounts"] if m["name"] == "certificate"]
        assert volume == certificate["spec"]["secretName"]
        assert (settings.certificate, settings.key) == (f"{mount}/tls.crt", f"{mount}/tls.key")
        assert all(one["name"] != "certificate" for one in pod(objects, "controller")["volumes"])
    assert others["Certificate", "muster-webhook"]["spec"]["issuerRef"] == corporate
    assert not any(kind == "Issuer" for kind, _ in others)
    issuer = own["Certificate", "muster-webhook"]["spec"]["issuerRef"]
    authority = own["Certificate", "muster-authority"]["spec"]
    assert own[issuer["kind"], issuer["name"]]["spec"] == {"ca": {"secretName": authority["secretName"]}}
    assert (authority["isCA"], authority["privateKey"]["rotationPolicy"]) == (True, "Never")
