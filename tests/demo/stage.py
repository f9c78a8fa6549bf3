"""The cluster that the story is told on: what is put there, what is seen there, and what is cleared away.

It speaks through Muster's own connection, which takes any kubeconfig.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from admission.errors import GoneError, MusterError
from admission.kube.client.connection import Connection, PatchKind, Request
from tests.demo.telling import StoryError

MANIFESTS = Path(__file__).parent / "manifests"
NAMESPACES = ("demo-vision", "demo-language")
FINISH = "test.muster.dev/finish"
SECONDS_BETWEEN_LOOKS = 0.1

T = TypeVar("T")
Json = dict[str, Any]

COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "Queue": "/apis/muster.dev/v1alpha1/queues",
    "Meter": "/apis/muster.dev/v1alpha1/meters",
    "Gang": "/apis/muster.dev/v1alpha1/namespaces/{namespace}/gangs",
}


def documents(name: str) -> list[Json]:
    """Return the objects of one of the story's manifests."""
    return [found for found in yaml.safe_load_all((MANIFESTS / name).read_text()) if found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A cluster, and how manifests are fitted to it before they are put there."""

    connection: Connection
    kubeconfig: str
    fitted: Callable[[Json], Json]

    async def put(self, manifests: Iterable[Json]) -> None:
        """Create or change objects."""
        for manifest in manifests:
            await self._put(self.fitted(manifest))

    async def _put(self, manifest: Json) -> None:
        path = where(manifest)
        try:
            await self._apply(path, manifest)
        except GoneError:
            # The CRD is there, but this API server's endpoint for it is a moment behind.
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            await self._apply(path, manifest)
        if "status" in manifest:
            await self._apply(f"{path}/status", {name: value for name, value in manifest.items() if name != "spec"})

    async def _apply(self, path: str, manifest: Json) -> None:
        params = {"fieldManager": "muster-demo", "force": "true"}
        request = Request(method="PATCH", path=path, params=params, body=manifest, content=PatchKind.APPLY)
        await self.connection.send(request)

    async def gang(self, namespace: str, job: str) -> Json | None:
        """Return the Gang of a Job, or None while there is none."""
        found = await self._items("Gang", namespace)
        return next((gang for gang in found if gang["spec"].get("workload", {}).get("name") == job), None)

    async def pods(self, namespace: str, job: str) -> list[Json]:
        """Return the pods of a Job."""
        label = "batch.kubernetes.io/job-name"
        return [pod for pod in await self._items("Pod", namespace) if pod["metadata"]["labels"].get(label) == job]

    async def queue(self, name: str) -> Json:
        return await self.connection.get(f"{COLLECTIONS['Queue']}/{name}")

    async def finish(self, namespace: str, job: str) -> None:
        """Let every pod of a Job succeed."""
        body = {"metadata": {"annotations": {FINISH: "true"}}}
        for pod in await self.pods(namespace, job):
            path = f"{COLLECTIONS['Pod'].format(namespace=namespace)}/{pod['metadata']['name']}"
            await self.connection.patch(path, body, PatchKind.MERGE)

    async def is_gated(self, namespace: str) -> bool:
        """Whether a pod that is created in a namespace now would be held: a dry run asks the webhook."""
        meta = {"name": "is-the-webhook-there"}
        pod = {"metadata": meta, "spec": {"containers": [{"name": "main", "image": "none"}]}}
        path = COLLECTIONS["Pod"].format(namespace=namespace)
        made = await self.connection.send(Request(method="POST", path=path, params={"dryRun": "All"}, body=pod))
        return any(gate["name"] == "muster.dev/admission" for gate in made["spec"].get("schedulingGates", ()))

    async def _items(self, kind: str, namespace: str) -> list[Json]:
        path = COLLECTIONS[kind].format(namespace=namespace)
        found: list[Json] = (await self.connection.get(path)).get("items") or []
        return found


async def until(
    look: Callable[[], Awaitable[T | None]], *, what: str, within: float, check: Callable[[], None] = lambda: None
) -> T:
    """Look until something is seen, and return it. An API server that is busy or not ready yet is asked again."""
    deadline = time.monotonic() + within
    while True:
        check()
        trouble = ""
        try:
            seen = await look()
        except MusterError as error:
            seen, trouble = None, f": {error}"
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise StoryError(f"{what}: not seen within {within:g} s{trouble}")
        await asyncio.sleep(SECONDS_BETWEEN_LOOKS)


def where(manifest: Json) -> str:
    """Return the path of an object."""
    meta = manifest["metadata"]
    return f"{COLLECTIONS[manifest['kind']].format(namespace=meta.get('namespace', ''))}/{meta['name']}"
