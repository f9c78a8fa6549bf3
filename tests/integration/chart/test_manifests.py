"""What the chart is as a whole: the manifests in deploy, a package of it, and the values that are refused.

`MUSTER_REGENERATE=1` (`make manifests`) writes deploy/manifests again.
"""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.chart.charts import (
    CHART,
    COVERAGE,
    DASHBOARD,
    IMAGE,
    ROOT,
    TLS,
    Helm,
    _option,
    rendered,
    template,
)

pytestmark = pytest.mark.timeout(120, func_only=True)

MANIFESTS = ROOT / "deploy" / "manifests"
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

HEADER = """\
# Rendered from deploy/chart; change it there and run `make manifests`.
"""


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


def test_without_crds_there_is_no_right_to_write_them(helm: Helm) -> None:
    usual, without = (
        json.dumps(objects["ClusterRole", "muster"]["rules"])
        for objects in (rendered(helm), rendered(helm, "settings.install_crds=false"))
    )

    assert "customresourcedefinitions" in usual
    assert "customresourcedefinitions" not in without


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
