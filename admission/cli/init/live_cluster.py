"""A live cluster for `muster init`: its objects, and the creation of new ones by the user's own rights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from admission.api.muster import status_views
from admission.api.muster.gangs import GangReport, Phase
from admission.api.values.decoding import Json
from admission.cli.cluster_options import Cluster
from admission.dra import compatibility
from admission.dra.compatibility import SchedulerProfile
from admission.errors import ClusterUnavailableError, ConflictError, FixError, ForbiddenError, GoneError
from admission.kube.cache import watched_resources
from admission.kube.cache.watched_resources import Kind
from admission.kube.client import bounded_wait, paths
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
"""How long to wait for a new queue to be active, and for the gang to run."""


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
        bodies=tuple(bodies), profile=compatibility.of_version(version) or compatibility.NEWEST, notes=tuple(notes)
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
            await wait_active(cluster, queue)
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


async def wait_active(cluster: Cluster, queue: str) -> None:
    """Wait until a queue is active. Raises ClusterUnavailableError after ACTIVE_SECONDS."""
    found = await bounded_wait.poll(
        lambda: cluster.get_object(watched_resources.QUEUES, queue), _is_active, seconds=ACTIVE_SECONDS
    )
    if not _is_active(found):
        raise ClusterUnavailableError(
            f"queue {queue} has not become active within {ACTIVE_SECONDS:.0f} s: see whether Muster's controller runs"
            f" (`muster doctor`) and what `muster queue show {queue}` says; then run the same command again"
        )


def _is_active(queue: Json | None) -> bool:
    conditions = ((queue or {}).get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Active" and one.get("status") == "True" for one in conditions)


async def gang_of(cluster: Cluster, namespace: str, job: str, *, seconds: float | None = None) -> GangReport | None:
    """Return the gang of a Job as soon as it runs; after `seconds` as it is then; None if there is no gang."""
    last: GangReport | None = None

    async def read() -> GangReport | None:
        nonlocal last
        reports = map(status_views.gang, await cluster.list_objects(watched_resources.GANGS, namespace))
        last = next((one for one in reports if one.workload is not None and one.workload.name == job), last)
        return last

    return await bounded_wait.poll(read, _has_started, seconds=START_SECONDS if seconds is None else seconds)


def _has_started(gang: GangReport | None) -> bool:
    return gang is not None and gang.phase in (Phase.RUNNING, Phase.FINISHED)
