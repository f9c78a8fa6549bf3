"""What helm makes of deploy/chart: the manifests in deploy, what each value changes, and which values are refused.

`MUSTER_REGENERATE=1` (`make manifests`) writes deploy/manifests again.
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.kube.cache import dashboard_store, watched_resources
from admission.settings import Settings, load
from admission.settings.schema import fields
from admission.webhook import server
from tests.controlplane import building

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "chart"
MANIFESTS = ROOT / "deploy" / "manifests"
NAMESPACE = "muster-system"
IMAGE = "image.repository=registry.example.com/muster"
SECRET_URL = "postgresql://muster@db.example/muster"
"""What the Secret holds that a variable comes from."""

FILES = {
    "rbac.yaml": ("rbac.yaml",),
    "muster.yaml": ("settings.yaml", "priority.yaml", "webhook.yaml", "controller.yaml", "networkpolicy.yaml"),
    "monitoring.yaml": ("monitoring.yaml",),
    "dashboard.yaml": ("dashboard.yaml",),
}
"""Files of deploy/manifests, and the templates that each has."""

OPTIONS = (
    *("namespace.create=true", "serviceMonitor.enabled=true", "alerts.enabled=true", "ledger.secret=muster-ledger"),
    *("uninstall.enabled=false", "smokeTest.enabled=false"),
)
"""What is asked for in deploy/manifests besides an image; hooks are Helm's alone."""

DASHBOARD = "dashboard.enabled=true"
BOOKS = "ledger.secret=books"
COVERAGE = "settings.coverage=true"
"""Manifests have no values, so their roles suffice for all settings."""

TLS = "dashboard.tls.secret=pages-tls"
UNINSTALL, SMOKE_TEST = "muster-uninstall", "muster-smoke-test"
HOOKS = (UNINSTALL, SMOKE_TEST)
"""The accounts of hooks."""

ROLES = ["webhook", "controller", "dashboard"]

HEADER = """\
# Rendered from deploy/chart; change it there and run `make manifests`.
"""

pytestmark = pytest.mark.timeout(120, func_only=True)

Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def program() -> Path:
    """Helm, built if it is not in the cache. Without Go the test fails in CI, and else skips."""
    try:
        return building.helm()
    except building.ToolMissing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture
def helm(program: Path, tmp_path: Path) -> Helm:
    """Run helm with some words, with folders of its own and no cluster."""
    folders = {f"HELM_{name}_HOME": str(tmp_path / name) for name in ("CACHE", "CONFIG", "DATA")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(program), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=folders, cwd=ROOT)

    return run


def template(helm: Helm, *values: str) -> subprocess.CompletedProcess[str]:
    """Render the chart. values: `name=JSON`, or `name=text`."""
    chosen = [word for value in values for word in _option(value)]
    return helm("template", "muster", str(CHART), "--namespace", NAMESPACE, *chosen)


def _option(value: str) -> tuple[str, str]:
    name, _, text = value.partition("=")
    try:
        json.loads(text)
    except ValueError:
        return "--set-string", value
    return "--set-json", f"{name}={text}"


def rendered(helm: Helm, *values: str) -> dict[tuple[str, str], Any]:
    """Return what is rendered with an image and these values, by kind and name."""
    done = template(helm, IMAGE, *values)
    assert done.returncode == 0, done.stderr
    objects = [document for document in yaml.safe_load_all(done.stdout) if document]
    return {(found["kind"], found["metadata"]["name"]): found for found in objects}


def pod(objects: dict[tuple[str, str], Any], role: str) -> Any:
    return objects["Deployment", f"muster-{role}"]["spec"]["template"]["spec"]


def config(objects: dict[tuple[str, str], Any], role: str = "controller") -> Settings:
    """Return the settings that Muster reads in a pod: the file that is mounted, and the variables that are set."""
    [container] = pod(objects, role)["containers"]
    [volume] = [one["configMap"]["name"] for one in pod(objects, role)["volumes"] if one["name"] == "settings"]
    variables = {one["name"]: one.get("value", SECRET_URL) for one in container["env"]}
    [mount] = [one for one in container["volumeMounts"] if one["name"] == "settings"]
    name = Path(variables[load.CONFIG]).relative_to(mount["mountPath"]).name
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / name
        file.write_text(objects["ConfigMap", volume]["data"][name])
        return load.read(file, variables).settings


def test_the_manifests_are_what_the_chart_says(helm: Helm) -> None:
    parts = _parts(helm, *OPTIONS) | {"dashboard.yaml": _parts(helm, *OPTIONS, DASHBOARD)["dashboard.yaml"]}
    parts["rbac.yaml"] = _parts(helm, *OPTIONS, COVERAGE)["rbac.yaml"]
    assert set(parts) == {name for names in FILES.values() for name in names}

    for name, templates in FILES.items():
        wanted = HEADER + "---\n".join(text for one in templates for text in parts[one])
        if os.environ.get("MUSTER_REGENERATE") == "1":
            (MANIFESTS / name).write_text(wanted)
        assert (MANIFESTS / name).read_text() == wanted, "run `make manifests`"


def _parts(helm: Helm, *values: str) -> dict[str, list[str]]:
    """Return what each template yields."""
    done = template(helm, IMAGE, *values)
    assert done.returncode == 0, done.stderr
    parts: dict[str, list[str]] = {}
    for part in ("\n" + done.stdout).split("\n---\n# Source: muster/templates/")[1:]:
        name, _, text = part.partition("\n")
        parts.setdefault(name, []).append(text.strip("\n") + "\n")
    return parts


def test_the_dashboard_changes_nothing_of_the_other_roles(helm: Helm) -> None:
    plain, shown = _parts(helm), _parts(helm, DASHBOARD, TLS, 'settings.dashboard.audiences=["muster"]')

    del shown["dashboard.yaml"]
    assert shown == plain


def test_helm_lint_finds_no_problem(helm: Helm) -> None:
    done = helm("lint", str(CHART), "--strict", "--set", IMAGE)

    assert done.returncode == 0, done.stdout + done.stderr


def test_helm_lint_passes_on_the_defaults(helm: Helm) -> None:
    """Only to render the chart needs an image, which is told then."""
    done = helm("lint", str(CHART))

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_package_has_the_crds_and_nothing_hidden(helm: Helm, tmp_path: Path) -> None:
    done = helm("package", str(CHART), "--destination", str(tmp_path))

    assert done.returncode == 0, done.stderr
    with tarfile.open(next(tmp_path.glob("muster-*.tgz"))) as package:
        names = {Path(name).relative_to("muster").as_posix() for name in package.getnames()}
    assert {f"crds/{path.name}" for path in (ROOT / "config/crds").iterdir()} <= names
    assert {"values.schema.json", "templates/NOTES.txt", "files/alerts.yaml"} <= names
    assert [name for name in names if name.startswith(".") and name != ".helmignore"] == []


REFUSED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "no image": ((), ("image", "repository")),
    "a value that there is not": ((IMAGE, "webook.replicas=3"), ("webook",)),
    "a setting that there is not": ((IMAGE, "settings.webhook.prot=1"), ("settings", "prot")),
    "a setting of the chart's own": ((IMAGE, "settings.webhook.port=1"), ("settings", "port")),
    "a setting of the wrong type": ((IMAGE, 'settings.controller.steps="many"'), ("steps",)),
    "no webhook": ((IMAGE, "webhook.replicas=0"), ("replicas",)),
    "more workers than Muster takes": ((IMAGE, "webhook.workers=65"), ("workers",)),
    "a digest that is none": ((IMAGE, "image.digest=latest"), ("digest",)),
    "a size that is none": ((IMAGE, "ledger.sqlite.size=large"), ("size",)),
    "no ledger": ((IMAGE, "ledger.sqlite.size="), ("ledger.secret", "ledger.sqlite.size")),
    "two ledgers": (
        (IMAGE, "ledger.secret=books", "ledger.cloudNativePG.enabled=true"),
        ("ledger.secret", "ledger.cloudNativePG.enabled"),
    ),
    "a name of 0.1": ((IMAGE, "webDashboard.enabled=true"), ("webDashboard",)),
    "a port that is none": ((IMAGE, "networkPolicy.databasePort=70000"), ("databasePort",)),
    "an address that is none": ((IMAGE, 'networkPolicy.apiServer=["10.0.0.300"]'), ("networkPolicy", "apiServer")),
    "a range that is none": ((IMAGE, 'networkPolicy.apiServer=["10.0.0.0/33"]'), ("networkPolicy", "apiServer")),
    "a name in the place of an address": ((IMAGE, 'networkPolicy.apiServer=["api.example.com"]'), ("apiServer",)),
    "a peer that misspells its block": (
        (IMAGE, 'networkPolicy.apiServer=[{"ipblock": {"cidr": "10.0.0.0/28"}}]'),
        ("networkPolicy", "apiServer"),
    ),
    "a peer that is nobody": ((IMAGE, "networkPolicy.apiServer=[{}]"), ("networkPolicy", "apiServer")),
    "sessions that hold on one pod of several": ((IMAGE, DASHBOARD, "dashboard.replicas=2"), ("sessions.secret",)),
    "client certificates without TLS": ((IMAGE, DASHBOARD, "dashboard.tls.authority=ca"), ("tls.secret",)),
    "an Ingress that reaches nothing": (
        (IMAGE, DASHBOARD, "dashboard.ingress.enabled=true", "dashboard.ingress.host=muster.example.com"),
        ("dashboard.ingress", "dashboard.tls.secret"),
    ),
    "an Ingress for no host": ((IMAGE, DASHBOARD, "dashboard.ingress.enabled=true"), ("dashboard.ingress.host",)),
    "a setting among the variables": (
        (IMAGE, 'controller.extraEnv=[{"name": "MUSTER_LOG_LEVEL", "value": "debug"}]'),
        ("controller.extraEnv", "MUSTER_LOG_LEVEL", "settings"),
    ),
    "files of the dashboard's own": ((IMAGE, "settings.dashboard.key=tls.key"), ("dashboard", "key")),
}


@pytest.mark.parametrize(("values", "named"), REFUSED.values(), ids=REFUSED)
def test_contradictory_chart_values_are_refused_by_name(
    helm: Helm, values: tuple[str, ...], named: tuple[str, ...]
) -> None:
    done = template(helm, *values)

    assert done.returncode != 0
    assert all(word in done.stderr for word in named), done.stderr


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
    given = {"log_level": "debug"}
    needed, foreign = "settings.webhook.reviews=7", "settings.dashboard.session_hours=7"
    if role == "dashboard":
        needed, foreign = foreign, needed

    usual = checksum(rendered(helm, DASHBOARD), role)

    changed = (*(f"settings.{path}={given.get(path, 7)}" for path in live), foreign)
    assert usual == checksum(rendered(helm, DASHBOARD, *changed), role)
    assert usual != checksum(rendered(helm, DASHBOARD, needed), role)


def checksum(objects: dict[tuple[str, str], Any], role: str) -> str:
    template = objects["Deployment", f"muster-{role}"]["spec"]["template"]
    return str(template["metadata"]["annotations"]["checksum/settings"])


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


def test_a_dashboard_as_it_comes_is_reached_by_nobody_but_who_forwards_its_port(helm: Helm) -> None:
    objects = rendered(helm, DASHBOARD)

    settings = config(objects, "dashboard").dashboard
    assert (settings.host, settings.certificate, settings.plain) == ("127.0.0.1", None, False)
    assert [port["name"] for port in objects["Service", "muster-dashboard"]["spec"]["ports"]] == ["metrics"]
    ingress = objects["NetworkPolicy", "muster-dashboard"]["spec"]["ingress"]
    assert [port["port"] for rule in ingress for port in rule["ports"]] == ["metrics"]
    assert ("PodDisruptionBudget", "muster-dashboard") not in objects


def test_a_dashboard_with_a_certificate_serves_tls_to_whom_the_network_lets_in(helm: Helm) -> None:
    proxies = '[{"podSelector": {"matchLabels": {"app": "oauth2-proxy"}}}]'
    own = ("dashboard.tls.authority=proxies-ca", "dashboard.sessions.secret=sessions", "dashboard.replicas=2")
    header = "settings.dashboard.user_header=X-Forwarded-User"

    objects = rendered(helm, DASHBOARD, TLS, *own, header, f"networkPolicy.dashboard={proxies}")

    settings = config(objects, "dashboard").dashboard
    mounts = {one["name"]: one["mountPath"] for one in pod(objects, "dashboard")["containers"][0]["volumeMounts"]}
    secrets = {
        one["name"]: one["secret"]["secretName"] for one in pod(objects, "dashboard")["volumes"] if "secret" in one
    }
    assert secrets == {"certificate": "pages-tls", "authority": "proxies-ca", "sessions": "sessions"}
    assert settings.host == "0.0.0.0"  # noqa: S104 - compared
    assert (settings.certificate, settings.key) == tuple(f"{mounts['certificate']}/tls.{end}" for end in ("crt", "key"))
    assert settings.authority == f"{mounts['authority']}/ca.crt"
    assert settings.session_keys == f"{mounts['sessions']}/keys"
    assert settings.user_header == "X-Forwarded-User"
    [pages] = [one for one in objects["Service", "muster-dashboard"]["spec"]["ports"] if one["name"] == "pages"]
    assert (pages["port"], pages["targetPort"], pages["appProtocol"]) == (443, "pages", "https")
    allowed = objects["NetworkPolicy", "muster-dashboard"]["spec"]["ingress"][0]
    assert allowed == {"ports": [{"protocol": "TCP", "port": "pages"}], "from": json.loads(proxies)}
    assert objects["PodDisruptionBudget", "muster-dashboard"]["spec"]["maxUnavailable"] == 1


def test_a_dashboard_behind_a_proxy_that_ends_tls_serves_plain_http(helm: Helm) -> None:
    objects = rendered(helm, DASHBOARD, "settings.dashboard.plain=true")

    settings = config(objects, "dashboard").dashboard
    assert (settings.host, settings.plain, settings.certificate) == ("0.0.0.0", True, None)  # noqa: S104 - compared
    ports = [port["port"] for port in objects["Service", "muster-dashboard"]["spec"]["ports"]]
    assert ports == [80, 9090]


def test_the_dashboard_reads_the_books_as_another_user_if_there_is_one(helm: Helm) -> None:
    usual, other = (
        database_of(rendered(helm, DASHBOARD, "ledger.secret=books", *values), "dashboard")
        for values in ((), ("dashboard.ledger.secret=reader", "dashboard.ledger.key=dsn"))
    )

    assert usual == {"name": "books", "key": "url"}
    assert other == {"name": "reader", "key": "dsn"}


def database_of(objects: dict[tuple[str, str], Any], role: str) -> Any:
    """Return where a pod has the database's URL from."""
    [container] = pod(objects, role)["containers"]
    [found] = [one["valueFrom"]["secretKeyRef"] for one in container["env"] if "valueFrom" in one]
    return found


def test_the_dashboard_reads_a_file_where_the_controller_writes_it(helm: Helm) -> None:
    objects = rendered(helm, DASHBOARD, "ledger.sqlite.size=1Gi")

    [term] = pod(objects, "dashboard")["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    controller = objects["Deployment", "muster-controller"]["spec"]["template"]["metadata"]["labels"]
    assert term["labelSelector"]["matchLabels"] == controller
    assert config(objects, "dashboard").ledger.url == config(objects, "controller").ledger.url
    assert "affinity" not in pod(rendered(helm, DASHBOARD, BOOKS), "dashboard")
    mine = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "books"}}}
    given = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [mine]}}
    both = rendered(helm, DASHBOARD, "ledger.sqlite.size=1Gi", f"dashboard.affinity={json.dumps(given)}")
    assert pod(both, "dashboard")["affinity"]["podAffinity"] == {
        "requiredDuringSchedulingIgnoredDuringExecution": [mine, term]
    }


READ = ["list", "watch"]
ASKED = ["create"]


def test_the_dashboard_role_may_read_shown_kinds_and_create_access_reviews(helm: Helm) -> None:
    objects = rendered(helm, DASHBOARD)

    rules = objects["ClusterRole", "muster-dashboard"]["rules"]
    found = {f"{name}.{rule['apiGroups'][0]}": rule["verbs"] for rule in rules for name in rule["resources"]}
    assert found == {
        **{f"{kind.plural}.{kind.group}": READ for kind in dashboard_store.WATCHED},
        "tokenreviews.authentication.k8s.io": ASKED,
        "selfsubjectreviews.authentication.k8s.io": ASKED,
        "subjectaccessreviews.authorization.k8s.io": ASKED,
    }
    subjects = objects["ClusterRoleBinding", "muster-dashboard"]["subjects"]
    assert [one["name"] for one in subjects] == [pod(objects, "dashboard")["serviceAccountName"]]
    assert subjects[0]["name"] != pod(objects, "controller")["serviceAccountName"]
    assert not any(kind in ("Role", "RoleBinding") and name == "muster-dashboard" for kind, name in objects)


def test_each_role_has_an_account_of_its_own_and_roles_that_name_it_alone(helm: Helm) -> None:
    objects = rendered(helm, DASHBOARD)

    accounts = {role: pod(objects, role)["serviceAccountName"] for role in ROLES}
    assert accounts == {"webhook": "muster-webhook", "controller": "muster", "dashboard": "muster-dashboard"}
    assert {name for kind, name in objects if kind == "ServiceAccount"} == {*accounts.values(), *HOOKS}
    for (kind, name), found in objects.items():
        if kind.endswith("RoleBinding"):
            assert found["roleRef"]["name"] == name
            assert [(one["kind"], one["name"], one["namespace"]) for one in found["subjects"]] == [
                ("ServiceAccount", name, NAMESPACE)
            ]


REVIEWS = {"tokenreviews", "selfsubjectreviews", "subjectaccessreviews"}
"""What is asked by creating it, and stored nowhere."""


@pytest.mark.parametrize("account", ["muster-webhook", "muster-dashboard"])
def test_who_answers_others_may_write_nothing(helm: Helm, account: str) -> None:
    objects = rendered(helm, DASHBOARD, COVERAGE, 'settings.fence=["gpu.example.com"]')

    granted = {
        (resource, verb)
        for (kind, name), found in objects.items()
        if kind in ("ClusterRole", "Role") and name == account
        for rule in found["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {(resource, verb) for resource, verb in granted if verb not in ("get", "list", "watch")} <= {
        (resource, "create") for resource in REVIEWS
    }
    assert granted


def test_no_role_has_a_wildcard_or_reads_a_secret_or_config_map_that_it_does_not_name(helm: Helm) -> None:
    objects = rendered(helm, DASHBOARD, COVERAGE)

    for (kind, _), found in objects.items():
        for rule in found["rules"] if kind in ("ClusterRole", "Role") else ():
            assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            if {"secrets", "configmaps"} & {*rule["resources"]}:
                assert kind == "Role"
                assert rule.get("resourceNames") or rule["verbs"] == ["create"], "names do not restrict `create`"


CERT_MANAGER, NO_HEADS = "webhook.certManager.enabled=true", "settings.heads.enabled=false"


def secret_rules(objects: Mapping[tuple[str, str], Any], account: str) -> list[tuple[list[str], list[str]]]:
    """Return the names and verbs of an account's rules about Secrets; no names: all of them."""
    rules = objects.get(("Role", account), {}).get("rules", ())
    return [(rule.get("resourceNames", []), rule["verbs"]) for rule in rules if "secrets" in rule["resources"]]


@pytest.mark.parametrize("settings", [(), (CERT_MANAGER,)])
def test_the_controller_writes_the_secret_of_the_webhooks_paths_and_the_webhook_reads_it(
    helm: Helm, settings: tuple[str, ...]
) -> None:
    objects = rendered(helm, NO_HEADS, *settings)

    assert secret_rules(objects, "muster-webhook") == [(["muster-webhook"], ["get"])]
    assert secret_rules(objects, "muster") == [([], ["create"]), (["muster-webhook"], ["get", "update"])]


def test_the_job_before_uninstalling_runs_as_an_account_that_exists_for_it_alone(helm: Helm) -> None:
    objects = rendered(helm, "settings.webhook.linger=3")

    hooks = {key: found["metadata"]["annotations"] for key, found in objects.items() if key[1] == UNINSTALL}
    assert {one["helm.sh/hook"] for one in hooks.values()} == {"pre-delete"}
    assert {key[0] for key, one in hooks.items() if one.get("helm.sh/hook-weight") == "-1"} == {
        *("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    }
    template = objects["Job", UNINSTALL]["spec"]["template"]
    [container] = template["spec"]["containers"]
    assert container["args"] == ["uninstall", "--yes", "--namespace", NAMESPACE]
    assert template["spec"]["serviceAccountName"] == UNINSTALL
    selected = objects["NetworkPolicy", "muster-controller"]["spec"]["podSelector"]["matchLabels"]
    assert not selected.items() <= template["metadata"]["labels"].items(), "a policy would cut it off"
    assert not any(name == UNINSTALL for _, name in rendered(helm, "uninstall.enabled=false"))


def test_the_smoke_tests_account_reads_and_deletes_what_has_its_name_alone(helm: Helm) -> None:
    objects = rendered(helm, "image.digest=sha256:" + "0" * 64)

    hooks = {key: found["metadata"]["annotations"] for key, found in objects.items() if key[1] == SMOKE_TEST}
    assert {one["helm.sh/hook"] for one in hooks.values()} == {"test"}
    for rule in objects["ClusterRole", SMOKE_TEST]["rules"]:
        assert rule["verbs"] in (["create"], ["list"]) or rule["resourceNames"] == [SMOKE_TEST], rule
    spec = objects["Pod", SMOKE_TEST]["spec"]
    [container] = spec["containers"]
    assert spec["serviceAccountName"] == SMOKE_TEST
    assert container["args"] == ["smoke-test", "--image", container["image"]]
    other = rendered(helm, "smokeTest.image=busybox:1.37")["Pod", SMOKE_TEST]["spec"]["containers"][0]
    assert other["args"] == ["smoke-test", "--image", "busybox:1.37"]


def test_the_webhook_reads_what_it_watches_and_no_more(helm: Helm) -> None:
    rules = rendered(helm)["ClusterRole", "muster-webhook"]["rules"]

    granted = {
        (group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if rule["verbs"] == READ
    }
    assert granted == {(kind.group, kind.plural) for kind in watched_resources.ADMISSION}
    others = [rule for rule in rules if rule["verbs"] == ["get"]]
    assert [(rule["resources"], rule["resourceNames"]) for rule in others] == [
        (["mutatingwebhookconfigurations", "validatingwebhookconfigurations"], ["muster"])
    ], "by which paths the API server calls it"


@pytest.mark.parametrize("role", ["webhook", "controller"])
def test_the_webhook_takes_the_controllers_account_alone_for_the_controller(helm: Helm, role: str) -> None:
    objects = rendered(helm)

    account = pod(objects, "controller")["serviceAccountName"]
    assert config(objects, role).controller.user == f"system:serviceaccount:{NAMESPACE}:{account}"


def test_pods_of_the_priority_may_be_made_where_that_takes_a_quota(helm: Helm) -> None:
    objects = rendered(helm)

    quota = objects["ResourceQuota", "muster-priority"]
    [scope] = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert (scope["scopeName"], scope["operator"]) == ("PriorityClass", "In")
    assert scope["values"] == [pod(objects, "webhook")["priorityClassName"]]
    for without in ("priorityClassName=", "priorityClassQuota=false"):
        assert not any(kind == "ResourceQuota" for kind, _ in rendered(helm, without))


@pytest.mark.parametrize("role", ROLES)
def test_the_user_of_pods_can_be_left_to_the_cluster(helm: Helm, role: str) -> None:
    nobody = [f"podSecurityContext.{name}=null" for name in ("runAsUser", "runAsGroup", "fsGroup")]

    left, usual = rendered(helm, DASHBOARD, *nobody), rendered(helm, DASHBOARD)

    assert pod(left, role)["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert pod(usual, role)["securityContext"]["runAsUser"] == 65532
    none = rendered(helm, DASHBOARD, "podSecurityContext=null", "securityContext.readOnlyRootFilesystem=false")
    assert "securityContext" not in pod(none, role)
    [container] = pod(none, role)["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": False,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("role", ROLES)
def test_pods_carry_what_a_cluster_asks_of_them(helm: Helm, role: str) -> None:
    header = {"name": "OTEL_EXPORTER_OTLP_HEADERS", "valueFrom": {"secretKeyRef": {"name": "otel", "key": "headers"}}}
    near: dict[str, Any] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    }
    given: dict[str, Any] = {
        "extraEnv": [header],
        "podAnnotations": {"sidecar.istio.io/inject": "false", "checksum/settings": "mine"},
        "podLabels": {"cost-centre": "42", "app.kubernetes.io/component": "mine"},
        "affinity": near,
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "topologySpreadConstraints": [{"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
        "extraVolumes": [{"name": "authorities", "configMap": {"name": "authorities"}}],
        "extraVolumeMounts": [{"name": "authorities", "mountPath": "/etc/ssl/certs", "readOnly": True}],
    }
    values = [f"{role}.{name}={json.dumps(value)}" for name, value in given.items()]

    objects = rendered(helm, DASHBOARD, BOOKS, *values)

    spec, usual = pod(objects, role), rendered(helm, DASHBOARD, BOOKS)
    metadata = objects["Deployment", f"muster-{role}"]["spec"]["template"]["metadata"]
    assert header in spec["containers"][0]["env"]
    assert {name: spec[name] for name in ("affinity", "nodeSelector", "tolerations")} == {
        name: given[name] for name in ("affinity", "nodeSelector", "tolerations")
    }
    assert metadata["annotations"] == {"sidecar.istio.io/inject": "false", "checksum/settings": checksum(usual, role)}
    selected = objects["Service", f"muster-{role}"]["spec"]["selector"]
    assert metadata["labels"] == {**selected, "cost-centre": "42"}
    [spread] = spec["topologySpreadConstraints"]
    assert spread == {**given["topologySpreadConstraints"][0], "labelSelector": {"matchLabels": selected}}
    assert given["extraVolumes"][0] in spec["volumes"]
    assert given["extraVolumeMounts"][0] in spec["containers"][0]["volumeMounts"]
    others = [other for other in ROLES if other != role]
    assert all(objects["Deployment", f"muster-{one}"] == usual["Deployment", f"muster-{one}"] for one in others)


@pytest.mark.parametrize(("kind", "values"), [("Job", "uninstall"), ("Pod", "smokeTest")])
def test_pods_of_hooks_carry_what_a_cluster_asks_of_them(helm: Helm, kind: str, values: str) -> None:
    given: dict[str, Any] = {
        "podAnnotations": {"sidecar.istio.io/inject": "false"},
        "podLabels": {"cost-centre": "42"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
    }

    objects = rendered(helm, *(f"{values}.{name}={json.dumps(value)}" for name, value in given.items()))

    [found] = [one for (its_kind, _), one in objects.items() if its_kind == kind]
    if kind == "Job":
        found = found["spec"]["template"]
    assert found["metadata"]["annotations"].items() >= given["podAnnotations"].items()
    assert found["metadata"]["labels"].items() >= given["podLabels"].items()
    assert {name: found["spec"][name] for name in ("affinity", "nodeSelector", "tolerations")} == {
        name: given[name] for name in ("affinity", "nodeSelector", "tolerations")
    }
    assert not any(its_kind == kind for its_kind, _ in rendered(helm, f"{values}.enabled=false"))


def test_common_labels_and_annotations_are_on_every_object_and_pod(helm: Helm) -> None:
    more = ("namespace.create=true", "serviceMonitor.enabled=true", "alerts.enabled=true", "grafana.enabled=true")
    common = ('commonLabels={"cost-centre": "42"}', 'commonAnnotations={"owner": "platform"}')

    objects = rendered(helm, DASHBOARD, "webhook.certManager.enabled=true", *more, *common)

    templates = [one["spec"]["template"] for one in objects.values() if "template" in one.get("spec", {})]
    for one in (*objects.values(), *templates):
        metadata = one["metadata"]
        assert (metadata["labels"]["cost-centre"], metadata["annotations"]["owner"]) == ("42", "platform"), metadata
        assert metadata["labels"]["app.kubernetes.io/name"] == "muster"


def test_accounts_carry_the_annotations_that_a_cloud_knows_them_by(helm: Helm) -> None:
    own = {"muster": "serviceAccount", "muster-webhook": "webhook.serviceAccount"}
    own["muster-dashboard"] = "dashboard.serviceAccount"
    values = [f'{value}.annotations={{"iam": "{name}"}}' for name, value in own.items()]

    objects = rendered(helm, DASHBOARD, *values)

    found = {
        name: account["metadata"]["annotations"]
        for (kind, name), account in objects.items()
        if kind == "ServiceAccount" and name not in HOOKS
    }
    assert found == {name: {"iam": name} for name in own}


def test_an_ingress_leads_to_the_pages(helm: Helm) -> None:
    host = ("dashboard.ingress.enabled=true", "dashboard.ingress.host=muster.example.com")
    more = ("dashboard.ingress.className=nginx", "dashboard.ingress.tlsSecret=muster-tls")
    speaks = 'dashboard.ingress.annotations={"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}'

    objects = rendered(helm, DASHBOARD, TLS, *host, *more, speaks)

    ingress = objects["Ingress", "muster-dashboard"]
    [rule] = ingress["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    service = objects["Service", backend["name"]]
    assert rule["host"] == "muster.example.com"
    assert backend["port"]["name"] in [port["name"] for port in service["spec"]["ports"]]
    assert ingress["spec"]["tls"] == [{"hosts": ["muster.example.com"], "secretName": "muster-tls"}]
    assert ingress["spec"]["ingressClassName"] == "nginx"
    assert ingress["metadata"]["annotations"] == {"nginx.ingress.kubernetes.io/backend-protocol": "HTTPS"}
    assert not any(kind == "Ingress" for kind, _ in rendered(helm, DASHBOARD, TLS))


COLLECTORS = {
    "http://otel.monitoring:4318": 4318,
    "https://otel.example.com": 443,
    "http://[2001:db8::1]:4318/v1": 4318,
    "http://[2001:db8::1]": 80,
    "https://[::1]/v1": 443,
}


@pytest.mark.parametrize(("endpoint", "port"), COLLECTORS.items())
def test_the_network_lets_out_to_the_collector_of_traces(helm: Helm, endpoint: str, port: int) -> None:
    usual, traced = rendered(helm), rendered(helm, f'settings.tracing.endpoint="{endpoint}"')

    before, after = (objects["NetworkPolicy", "muster-webhook"]["spec"]["egress"] for objects in (usual, traced))
    assert [rule for rule in after if rule not in before] == [{"ports": [{"protocol": "TCP", "port": port}]}]


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


def test_without_crds_there_is_no_right_to_write_them(helm: Helm) -> None:
    usual, without = (
        json.dumps(objects["ClusterRole", "muster"]["rules"])
        for objects in (rendered(helm), rendered(helm, "settings.install_crds=false"))
    )

    assert "customresourcedefinitions" in usual
    assert "customresourcedefinitions" not in without


@pytest.mark.parametrize("asked", [COVERAGE, 'settings.fence=["gpu.example.com"]'])
def test_without_fences_the_role_may_delete_fence_objects_but_not_create_them(helm: Helm, asked: str) -> None:
    plain, fencing = (granted(rendered(helm, *values)) for values in ((), (asked,)))

    assert plain < fencing
    assert fencing - plain == {
        *(("devicetaintrules", verb) for verb in ("create", "update")),
        *((f"validatingadmission{kind}", verb) for kind in KINDS for verb in ("watch", "create", "update")),
        *((f"{kind}webhookconfigurations", verb) for kind in ("mutating", "validating") for verb in READ),
        ("resourceclaims", "create"),
    }
    assert {("devicetaintrules", "delete"), ("validatingadmissionpolicies", "delete")} < plain


def test_the_right_to_publish_heads_is_given_only_where_they_are_signed(helm: Helm) -> None:
    signing, silent = granted(rendered(helm)), granted(rendered(helm, "settings.heads.enabled=false"))

    assert signing - silent == {("configmaps", verb) for verb in ("create", "get", "update")}
    named = [name for rule in rendered(helm)["Role", "muster"]["rules"] for name in rule.get("resourceNames", ())]
    assert {"muster-heads", "muster-heads-key"} <= set(named)


KINDS = ("policies", "policybindings")


def granted(objects: dict[tuple[str, str], Any]) -> set[tuple[str, str]]:
    """Return what webhook and controller may do."""
    rules = [*objects["ClusterRole", "muster"]["rules"], *objects["Role", "muster"]["rules"]]
    return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def test_the_network_is_closed_but_for_what_is_named(helm: Helm) -> None:
    api_server = '[{"ipBlock": {"cidr": "10.0.0.0/28"}}]'

    objects = rendered(helm, BOOKS, f"networkPolicy.apiServer={api_server}", "networkPolicy.databasePort=6432")

    webhook, controller = (objects["NetworkPolicy", f"muster-{role}"]["spec"] for role in ("webhook", "controller"))
    assert webhook["ingress"][0] == {
        "ports": [{"protocol": "TCP", "port": "webhook"}],
        "from": [{"ipBlock": {"cidr": "10.0.0.0/28"}}],
    }
    assert [port["port"] for rule in controller["ingress"] for port in rule["ports"]] == ["metrics"]
    assert {6432} == _ports(controller["egress"]) - _ports(webhook["egress"])
    assert not any(kind == "NetworkPolicy" for kind, _ in rendered(helm, "networkPolicy.enabled=false"))


def test_the_webhook_is_reached_from_the_addresses_that_are_named_alone(helm: Helm) -> None:
    addresses = '["10.0.0.0/28", "10.0.1.7", "fd00::/64", "fd00::7", {"ipBlock": {"cidr": "10.2.0.0/16"}}]'

    objects = rendered(helm, f"networkPolicy.apiServer={addresses}")

    asked, *_ = objects["NetworkPolicy", "muster-webhook"]["spec"]["ingress"]
    assert asked["ports"] == [{"protocol": "TCP", "port": "webhook"}]
    cidrs = ("10.0.0.0/28", "10.0.1.7/32", "fd00::/64", "fd00::7/128", "10.2.0.0/16")
    assert asked["from"] == [{"ipBlock": {"cidr": cidr}} for cidr in cidrs]


def test_as_it_comes_anybody_may_ask_the_webhook_and_monitoring_alone_reads_metrics(helm: Helm) -> None:
    objects = rendered(helm)

    asked, *others = objects["NetworkPolicy", "muster-webhook"]["spec"]["ingress"]
    assert asked == {"ports": [{"protocol": "TCP", "port": "webhook"}]}
    for role, rules in {
        "webhook": others,
        "controller": objects["NetworkPolicy", "muster-controller"]["spec"]["ingress"],
    }.items():
        [metrics] = rules
        assert metrics["from"] == [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
        ], role


def _ports(rules: list[dict[str, Any]]) -> set[int]:
    return {port["port"] for rule in rules for port in rule["ports"]}


def test_the_service_monitors_select_the_services(helm: Helm) -> None:
    labels = 'serviceMonitor.labels={"release": "prometheus"}'

    kinds = ("serviceMonitor.enabled=true", "alerts.enabled=true", "grafana.enabled=true")
    objects = rendered(helm, labels, DASHBOARD, *kinds)

    for role in ROLES:
        monitor, service = objects["ServiceMonitor", f"muster-{role}"], objects["Service", f"muster-{role}"]
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    rules = [rule for group in objects["PrometheusRule", "muster"]["spec"]["groups"] for rule in group["rules"]]
    assert {rule["annotations"]["runbook_url"].partition("#")[0] for rule in rules} == {
        "https://github.com/muster-dev/muster/blob/main/docs/runbook.md"
    }
    dashboard = objects["ConfigMap", "muster-dashboard"]["data"]["muster.json"]
    assert json.loads(dashboard) == json.loads((CHART / "files/dashboard.json").read_text())


def test_selectors_tell_the_roles_apart(helm: Helm) -> None:
    objects = rendered(helm, DASHBOARD, "dashboard.replicas=2", "dashboard.sessions.secret=sessions")

    for role in ROLES:
        labels = objects["Deployment", f"muster-{role}"]["spec"]["template"]["metadata"]["labels"]
        assert objects["Service", f"muster-{role}"]["spec"]["selector"] == labels
        assert objects["PodDisruptionBudget", f"muster-{role}"]["spec"]["selector"]["matchLabels"] == labels
        assert labels["app.kubernetes.io/component"] == role


def test_what_install_prints_is_what_the_chart_says_with_the_same_options(helm: Helm) -> None:
    image = ("image.repository=registry.example.org/muster", "image.tag=v1", *OPTIONS[-2:], DASHBOARD)
    options = [word for value in (*image, "namespace.create=true", "ledger.secret=books") for word in _option(value)]
    chart, covered = (
        helm("template", "muster", str(CHART), "--namespace", "batch", *options, *more)
        for more in ((), _option(COVERAGE))
    )
    assert chart.returncode == covered.returncode == 0, chart.stderr + covered.stderr
    wanted = {
        key: _by_name((covered if key[0].endswith("Role") else chart).stdout)[key] for key in _by_name(chart.stdout)
    }
    words = [
        "--dashboard",
        "--image",
        "registry.example.org/muster:v1",
        "--namespace",
        "batch",
        "--ledger-secret",
        "books",
    ]
    command = Path(sys.executable).with_name("muster")
    printed = subprocess.run([command, "install", "--print", *words], capture_output=True, text=True, check=True)

    assert _by_name(printed.stdout) == wanted


def _by_name(text: str) -> dict[tuple[str, str], Any]:
    """Return objects by kind and name. Nobody compares the checksum of settings with that of another rendering."""
    objects = {(found["kind"], found["metadata"]["name"]): found for found in yaml.safe_load_all(text) if found}
    for (kind, _), found in objects.items():
        if kind == "Deployment":
            del found["spec"]["template"]["metadata"]["annotations"]["checksum/settings"]
    return objects
