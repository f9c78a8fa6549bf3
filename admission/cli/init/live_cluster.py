"""A live cluster for `muster init`: its objects, and the creation of new ones by the user's own rights."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from admission.api.muster import status_views
from admission.api.muster.gangs import GangReport, Phase
from admission.api.values.decoding import Json
from admission.cli.cluster_options import Cluster
from admission.cycle import profile
from admission.dra import compatibility
from admission.dra.compatibility import SchedulerProfile
from admission.errors import ClusterUnavailableError, ConflictError, FixError, ForbiddenError, GoneError
from admission.kube.cache import watched_resources
from admission.kube.cache.watched_resources import Kind
from admission.kube.client import paths
from admission.kube.client.connection import PatchKind, Request

NEEDED = (watched_resources.NODES, watched_resources.NAMESPACES, watched_resources.SLICES, watched_resources.CLASSES)
OPTIONAL = (
    watched_resources.TAINT_RULES,
    watched_resources.CLAIMS,
    watched_resources.TEMPLATES,
    watched_resources.PODS,
    watched_resources.JOBS,
)
OWN = (watched_resources.QUEUES, watched_resources.METERS, watched_resources.POLICIES)
"""Muster's kinds; without Muster there are none."""

MANAGER = "muster-init"
"""Field manager of the objects, so that they are not mistaken for objects of the controller."""

ACTIVE_SECONDS = 60.0
START_SECONDS = 60.0
POLL_SECONDS = 0.5
"""How long to wait for a new queue to be active, for the gang to run, and between two looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterObjects:
    """The objects that were read, and the Kubernetes that they are of. notes: what could not be read."""

    bodies: tuple[Json, ...]
    profile: SchedulerProfile
    notes: tuple[str, ...] = ()


async def read(cluster: Cluster) -> ClusterObjects:
    """Read what a proposal depends on. Raises ForbiddenError if the user may not list nodes, slices or classes."""
    notes: list[str] = []
    bodies: list[Json] = []
    for kind in NEEDED:
        bodies += _typed(kind, await cluster.list_objects(kind))
    for kind in OPTIONAL:
        try:
            bodies += _typed(kind, await cluster.list_objects(kind))
        except ForbiddenError:
            notes.append(f"you may not list {kind}, so nothing is known of them: what is in use may look free")
        except FixError:
            continue  # the API server does not serve the kind
    try:
        for kind in OWN:
            bodies += _typed(kind, await cluster.list_objects(kind))
    except ForbiddenError as error:
        notes.append(f"{error}; what exists already of Muster's may be printed again")
    except FixError:
        notes.append("Muster is not installed in this cluster yet (`muster install --help`)")
    version = ".".join(map(str, await cluster.connection.version()))
    return ClusterObjects(
        bodies=tuple(bodies), profile=compatibility.of_version(version) or profile.NEWEST, notes=tuple(notes)
    )


def _typed(kind: Kind, items: Sequence[Json]) -> list[Json]:
    """Return the items of a list with the type that lists leave out."""
    version = "/".join(filter(None, (kind.group, kind.version)))
    return [{"apiVersion": version, "kind": kind.name, **item} for item in items]


async def create(cluster: Cluster, bodies: Sequence[Json], queue: str, say: Callable[[str], None]) -> None:
    """Apply the objects one by one; before the first one in a namespace, wait until the queue is active.

    Raises ForbiddenError where the user may not, ClusterUnavailableError when the queue does not become active.
    """
    waited = False
    for body in bodies:
        metadata = body["metadata"]
        if "namespace" in metadata and not waited:
            # A pod that is created before the webhook knows its queue is refused, and tried again much later.
            await active(cluster, queue)
            waited = True
        await _apply(cluster, body)
        where = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        say(f"{body['kind']} {where} created")


async def _apply(cluster: Cluster, body: Json) -> None:
    path = paths.join(_collection(body), body["metadata"]["name"])
    parameters: dict[str, Any] = {"fieldManager": MANAGER}
    request = Request(method="PATCH", path=path, params=parameters, body=body, content=PatchKind.APPLY)
    try:
        await cluster.connection.send(request)
    except GoneError as error:
        raise FixError(f"the cluster does not know {body['kind']}: is Muster installed there?") from error
    except ConflictError as error:
        raise FixError(
            f"{body['kind']} {body['metadata']['name']} was created by somebody else meanwhile: {error}"
        ) from error


_KINDS = {kind.name: kind for kind in (*NEEDED, *OPTIONAL, *OWN)}


def _collection(body: Json) -> str:
    kind = _KINDS[body["kind"]]
    namespace = body["metadata"].get("namespace")
    root, _, plural = kind.path.rpartition("/")
    return paths.within(root, namespace, plural) if namespace else kind.path


async def active(cluster: Cluster, queue: str) -> None:
    """Wait until a queue is active. Raises ClusterUnavailableError after ACTIVE_SECONDS."""
    try:
        async with asyncio.timeout(ACTIVE_SECONDS):
            while True:
                if _is_active(await cluster.get_object(watched_resources.QUEUES, queue)):
                    return
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise ClusterUnavailableError(
            f"queue {queue} has not become active within {ACTIVE_SECONDS:.0f} s: see whether Muster's controller runs"
            f" (`muster doctor`) and what `muster queue show {queue}` says; then run the same command again"
        ) from None


def _is_active(queue: Json | None) -> bool:
    conditions = ((queue or {}).get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Active" and one.get("status") == "True" for one in conditions)


async def gang_of(cluster: Cluster, namespace: str, job: str, *, seconds: float | None = None) -> GangReport | None:
    """Return the gang of a Job as soon as it runs; after `seconds` as it is then; None if there is no gang."""
    found: GangReport | None = None
    loop = asyncio.get_running_loop()
    deadline = loop.time() + (START_SECONDS if seconds is None else seconds)
    while True:
        reports = map(status_views.gang, await cluster.list_objects(watched_resources.GANGS, namespace))
        found = next((one for one in reports if one.workload is not None and one.workload.name == job), found)
        if (found is not None and found.phase in _STARTED) or loop.time() >= deadline:
            return found
        await asyncio.sleep(POLL_SECONDS)


_STARTED = (Phase.RUNNING, Phase.FINISHED)
