"""Kueue on a control plane, as its chart installs it: the queue that Muster is measured beside.

The program and its manifests come from one version of its Go module. What differs from the chart: it runs outside the
cluster, so its webhooks are reached by a Service of another name of this host, its certificates are put where a kubelet
would mount them, and it has every right. Its configuration is the chart's, with addresses of this host and the device
class that its Jobs ask for.
"""

import base64
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane import ControlPlane, building, fleet, modules
from tests.controlplane.clients import ApiError, Client
from tests.controlplane.fleet import Manifest
from tests.controlplane.observing import eventually
from tests.controlplane.processes import Family, FreePorts, Program, tail
from tests.e2e import rights

VERSION = "v0.19.2"
"""That of tests/controlplane/kueue/go.mod."""

USER = "kueue"
"""As whom it asks the API server; a control plane has to know it, in `system:masters`."""

NAMESPACE = "kueue-system"
LABEL = "kueue.x-k8s.io/queue-name"
QUEUE = "bench"
RESOURCE = "example.com/gpu"
"""As what its quota knows the devices of `fleet`."""

_MODULE = "sigs.k8s.io/kueue"
_API = "/apis/kueue.x-k8s.io/v1beta2"
_KEPT = ("CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "Secret")
_CERTIFICATE = f"/api/v1/namespaces/{NAMESPACE}/secrets/kueue-webhook-server-cert"
_SERVICE = "kueue-webhook-service"
_PATIENCE = 120.0


@contextmanager
def kueue(control_plane: ControlPlane, *, namespace: str, devices: int) -> Iterator[Program]:
    """Run Kueue with a queue of so many devices for a namespace; yield its process. All is removed at the end."""
    client = control_plane.client()
    client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    with FreePorts() as free:
        webhook, health, metrics = free.pick(), free.pick(), free.pick()
    with tempfile.TemporaryDirectory(prefix="muster-kueue-") as name:
        folder, certificates = Path(name), Path(name, "certificates")
        certificates.mkdir()
        config = folder / "config.json"
        config.write_text(yaml.safe_dump(_configuration(certificates, webhook, health, metrics)))
        _install(client, webhook)
        family = Family(folder)
        try:
            words = [str(_program()), f"--config={config}", f"--kubeconfig={control_plane.kubeconfig_for(USER)}"]
            program = family.start(USER, [*words, "--zap-log-level=2", "--feature-gates=VisibilityOnDemand=false"])
            _mount(client, certificates)
            eventually(lambda: _is_queued(client, program, namespace, devices), what="Kueue", within=_PATIENCE)
            yield program
        finally:
            family.end()
            _remove(client, namespace)


def _program() -> Path:
    module = building.HERE / "kueue"
    return building.cached(module, package=f"{_MODULE}/cmd/kueue", name="kueue", ldflags="-s -w")


@cache
def _chart() -> Sequence[Manifest]:
    chart = modules.source(_MODULE, VERSION) / "charts" / "kueue"
    return [one for one in yaml.safe_load_all(rights.helm("template", "kueue", str(chart), "-n", NAMESPACE)) if one]


def _configuration(certificates: Path, webhook: int, health: int, metrics: int) -> Mapping[str, Any]:
    (shipped,) = (one for one in _chart() if one["kind"] == "ConfigMap")
    found: dict[str, Any] = yaml.safe_load(shipped["data"]["controller_manager_config.yaml"])
    found["health"] = {"healthProbeBindAddress": f"127.0.0.1:{health}"}
    found["metrics"] = {"bindAddress": f"127.0.0.1:{metrics}"}
    found["webhook"] = {"host": "127.0.0.1", "port": webhook, "certDir": str(certificates)}
    found["leaderElection"]["resourceNamespace"] = NAMESPACE
    found["resources"] = {"deviceClassMappings": [{"name": RESOURCE, "deviceClassNames": [fleet.DEVICE_CLASS]}]}
    return found


def _install(client: Client, port: int) -> None:
    """Write what the API server has to know. port: of the webhooks."""
    here = {"type": "ExternalName", "externalName": "localhost"}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": _SERVICE}, "spec": here}
    client.create(f"/api/v1/namespaces/{NAMESPACE}/services", service)
    for manifest in _manifests():
        for reference in _services(manifest):
            reference["port"] = port
        client.create(_collection(manifest), manifest)


def _manifests() -> list[Manifest]:
    return [yaml.safe_load(yaml.safe_dump(one)) for one in _chart() if one["kind"] in _KEPT]


def _services(manifest: Manifest) -> Iterator[dict[str, Any]]:
    hooks = [*manifest.get("webhooks", ())]
    conversion = manifest.get("spec", {}).get("conversion", {}).get("webhook")
    for hook in (*hooks, *([conversion] if conversion else ())):
        yield hook["clientConfig"]["service"]


def _collection(manifest: Manifest) -> str:
    root = "/api/v1" if manifest["apiVersion"] == "v1" else f"/apis/{manifest['apiVersion']}"
    place = f"/namespaces/{NAMESPACE}" if manifest["kind"] == "Secret" else ""
    return f"{root}{place}/{manifest['kind'].lower()}s"


def _mount(client: Client, certificates: Path) -> None:
    """Put the certificate that Kueue makes where it reads it, as a kubelet does with a Secret."""
    data = eventually(lambda: client.get(_CERTIFICATE).get("data"), what="Kueue's certificate", within=_PATIENCE)
    for name, text in data.items():
        (certificates / name).write_bytes(base64.b64decode(text))


def _is_queued(client: Client, program: Program, namespace: str, devices: int) -> bool:
    """Whether its queue admits workloads, once its webhooks let the queue be written."""
    assert not program.ended, f"Kueue ended:\n{tail(program.log, 40)}"
    amount = {"name": RESOURCE, "nominalQuota": str(devices)}
    group = {"coveredResources": [RESOURCE], "flavors": [{"name": QUEUE, "resources": [amount]}]}
    try:
        _apply(client, "resourceflavors", "ResourceFlavor", {})
        _apply(client, "clusterqueues", "ClusterQueue", {"namespaceSelector": {}, "resourceGroups": [group]})
        _apply(client, f"namespaces/{namespace}/localqueues", "LocalQueue", {"clusterQueue": QUEUE})
    except ApiError:  # its webhooks are not there yet
        return False
    status = client.get(f"{_API}/namespaces/{namespace}/localqueues/{QUEUE}").get("status", {})
    conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
    return conditions.get("Active") == "True"


def _apply(client: Client, collection: str, kind: str, spec: Mapping[str, Any]) -> None:
    manifest = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": QUEUE}, "spec": spec}
    client.apply(f"{_API}/{collection}/{QUEUE}", manifest)


def _remove(client: Client, namespace: str) -> None:
    """Remove what asks its webhooks, then all else; nobody is left to remove its finalizers."""
    for manifest in reversed(_manifests()):
        if manifest["kind"].endswith("WebhookConfiguration"):
            client.delete(_path(manifest))
    for collection in (f"namespaces/{namespace}/localqueues", "clusterqueues", "resourceflavors"):
        path = f"{_API}/{collection}/{QUEUE}"
        if client.find(path) is not None:
            client.merge_patch(path, {"metadata": {"finalizers": None}})
            client.delete(path)
    for manifest in _manifests():
        if manifest["kind"] == "CustomResourceDefinition":
            client.delete(_path(manifest))
    client.delete(f"/api/v1/namespaces/{NAMESPACE}")


def _path(manifest: Manifest) -> str:
    return f"{_collection(manifest)}/{manifest['metadata']['name']}"
