"""Renderings of deploy/chart by helm."""

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from admission.settings import Settings, load

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy" / "chart"
NAMESPACE = "muster-system"
IMAGE = "image.repository=registry.example.com/muster"
SECRET_URL = "postgresql://muster@db.example/muster"
"""What the Secret holds that a variable comes from."""

DASHBOARD = "dashboard.enabled=true"
BOOKS = "ledger.secret=books"
COVERAGE = "settings.coverage=true"
"""Manifests have no values, so their roles suffice for all settings."""

TLS = "dashboard.tls.secret=pages-tls"
UNINSTALL, SMOKE_TEST = "muster-uninstall", "muster-smoke-test"
HOOKS = (UNINSTALL, SMOKE_TEST)
"""The accounts of hooks."""

ROLES = ["webhook", "controller", "dashboard"]

Helm = Callable[..., subprocess.CompletedProcess[str]]


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


def checksum(objects: dict[tuple[str, str], Any], role: str) -> str:
    template = objects["Deployment", f"muster-{role}"]["spec"]["template"]
    return str(template["metadata"]["annotations"]["checksum/settings"])


def database_of(objects: dict[tuple[str, str], Any], role: str) -> Any:
    """Return where a pod has the database's URL from."""
    [container] = pod(objects, role)["containers"]
    [found] = [one["valueFrom"]["secretKeyRef"] for one in container["env"] if "valueFrom" in one]
    return found
