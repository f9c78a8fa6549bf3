"""Where the story is told: on a control plane of our own, or on the cluster that KUBECONFIG names.

On a cluster of others it uses names of its own, a device class and driver of its own, and nodes that are tainted, so
that nobody's pods land there; and it clears everything away.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from admission import resources, settings
from admission.errors import ConflictError, GoneError, MusterError
from admission.kube.client.connection import Connection, PatchKind
from admission.kube.client.credentials import ClusterSelection
from admission.kube.webhook_config import gate_policy, pod_policy, registration
from tests.controlplane import ControlPlane, fleet
from tests.demo import kubelets
from tests.demo.stage import COLLECTIONS, NAMESPACES, Json, Stage, documents, until
from tests.demo.story import GPUS

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WEBHOOKS = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{plural}/muster"
    for plural in (*registration.KINDS.values(), *pod_policy.KINDS.values(), *gate_policy.KINDS.values())
)
TAINT = {"key": "demo.muster.dev/fake", "value": "true", "effect": "NoSchedule"}
OWN_DRIVER = "gpu.demo.muster.dev"


class RefusedError(Exception):
    """The story cannot be told on this cluster; the message is one sentence for people."""


@asynccontextmanager
async def own(control_plane: ControlPlane) -> AsyncIterator[Stage]:
    """Yield a stage on a control plane that is running; whoever started it ends it."""
    kubeconfig = control_plane.kubeconfig
    async with Connection(ClusterSelection(kubeconfig=kubeconfig)) as connection:
        yield Stage(connection=connection, kubeconfig=str(kubeconfig), fitted=lambda manifest: manifest)


@asynccontextmanager
async def borrowed() -> AsyncIterator[Stage]:
    """Yield a stage on the cluster of $KUBECONFIG, and clear it afterwards. Raises RefusedError."""
    async with Connection() as connection:
        await _check(connection)
        kept = await _standing(connection)
        nodes = [found["metadata"]["name"] for found in _hardware() if found["kind"] == "Node"]
        try:
            async with kubelets.playing(connection, nodes):
                yield Stage(connection=connection, kubeconfig=os.environ["KUBECONFIG"], fitted=fitted)
        finally:
            await _clear(connection, kept)


def fitted(manifest: Json) -> Json:
    """Return a manifest as it may stand on a cluster of others."""
    changed: Json = json.loads(json.dumps(manifest).replace(fleet.DRIVER, OWN_DRIVER))
    if changed["kind"] == "Node":
        changed["spec"]["taints"] = [TAINT]
    if changed["kind"] == "Job":
        toleration = {"key": TAINT["key"], "operator": "Exists"}
        changed["spec"]["template"]["spec"]["tolerations"] = [toleration]
    return changed


def _hardware() -> list[Json]:
    return fleet.demo_fleet(GPUS, prefix="demo-node")


async def _check(connection: Connection) -> None:
    version = ".".join(map(str, await connection.version()))
    if not await _there(connection, "/apis/resource.k8s.io/v1"):
        raise RefusedError(
            f"The cluster at {connection.server} (Kubernetes {version}) does not serve resource.k8s.io/v1, which the"
            " demo's claims need; Kubernetes 1.34 and later do."
        )
    if await _there(connection, WEBHOOKS[0]):
        raise RefusedError(
            f"Muster is registered at {connection.server} already, and two would be in each other's way."
        )
    for namespace in NAMESPACES:
        if await _there(connection, f"{COLLECTIONS['Namespace']}/{namespace}"):
            raise RefusedError(f"The cluster at {connection.server} has a namespace {namespace} already.")


async def _there(connection: Connection, path: str) -> bool:
    try:
        await connection.get(path)
    except GoneError:
        return False
    return True


async def _standing(connection: Connection) -> set[str]:
    """Return which of the things that `muster serve` makes are there before the demo."""
    return {path for path in _made_by_muster() if await _there(connection, path)}


def _made_by_muster() -> list[str]:
    names = sorted(path.stem for path in (resources.config() / "crds").glob("*.yaml"))
    crds = [f"{CRDS}/{'.'.join(reversed(name.split('_', 1)))}" for name in names]
    return [*crds, f"{COLLECTIONS['Namespace']}/{settings.Settings().lease.namespace}"]


async def _clear(connection: Connection, kept: set[str]) -> None:
    """Take away what the demo brought, webhooks first: while they stand, nothing can be created there."""
    await _delete(connection, WEBHOOKS)
    for namespace in NAMESPACES:
        pods = COLLECTIONS["Pod"].format(namespace=namespace)
        jobs = COLLECTIONS["Job"].format(namespace=namespace)
        await _delete(connection, await _below(connection, jobs), propagationPolicy="Background")
        await _delete(connection, await _below(connection, pods), gracePeriodSeconds=0)
    teams = [
        f"{COLLECTIONS[found['kind']]}/{found['metadata']['name']}" for found in reversed(documents("10-teams.yaml"))
    ]
    hardware = [f"{COLLECTIONS[found['kind']]}/{found['metadata']['name']}" for found in map(fitted, _hardware())]
    await _free(connection, [path for path in teams if path.startswith(COLLECTIONS["Queue"])])
    await _delete(connection, [*teams, *reversed(hardware)])
    await _delete(connection, [path for path in _made_by_muster() if path not in kept])
    for namespace in NAMESPACES:
        await until(
            lambda namespace=namespace: _gone(connection, f"{COLLECTIONS['Namespace']}/{namespace}"),  # type: ignore[misc]
            what=f"namespace {namespace} is gone",
            within=60,
        )


async def _free(connection: Connection, queues: Iterable[str]) -> None:
    """Take the finalizer from queues, for Muster has ended."""
    for queue in queues:
        with suppress(GoneError):
            await connection.patch(queue, {"metadata": {"finalizers": None}}, PatchKind.MERGE)


async def _below(connection: Connection, collection: str) -> list[str]:
    try:
        found = (await connection.get(collection)).get("items") or ()
    except GoneError:
        return []
    return [f"{collection}/{item['metadata']['name']}" for item in found]


async def _delete(connection: Connection, paths: Iterable[str], **options: Any) -> None:
    for path in paths:
        try:
            await connection.delete(path, options or None)
        except (GoneError, ConflictError):
            continue
        except MusterError as error:
            # Go on: what can be cleared shall be.
            print(f"could not delete {path}: {error}")


async def _gone(connection: Connection, path: str) -> bool:
    await asyncio.sleep(0)
    return not await _there(connection, path)
