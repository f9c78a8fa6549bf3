"""What a cluster has of Muster before it is uninstalled: gangs that run or wait, queues, fences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.muster import status_views
from admission.api.muster.gangs import Phase
from admission.api.values import names
from admission.api.values.decoding import Reader
from admission.cli.cluster_options import Cluster
from admission.errors import FixError, ForbiddenError
from admission.kube import fence_controller
from admission.kube.cache import watched_resources
from admission.kube.cache.watched_resources import Kind

MOST_NAMED = 5
"""The most gangs that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """running, waiting: gangs as `namespace/name`. queues: all of them. fences: drivers."""

    running: tuple[str, ...]
    waiting: tuple[str, ...]
    queues: tuple[Meta, ...]
    fences: tuple[str, ...]

    @property
    def kept_queues(self) -> list[Meta]:
        """Return the queues that a finalizer keeps."""
        return [queue for queue in self.queues if names.IN_USE in queue.finalizers]

    def lines(self) -> Iterator[str]:
        """Yield the lines to print before anything is removed."""
        if self.running:
            yield (
                f"{_counted(self.running, 'gang')} let in: the pods run on and keep their devices, and nobody counts"
                f" them any more ({_first(self.running)})"
            )
        if self.waiting:
            yield (
                f"{_counted(self.waiting, 'gang')} waiting: the pods stay behind the scheduling gate {names.GATE}, and"
                f" suspended workloads stay suspended, until somebody deletes them ({_first(self.waiting)})"
            )
        if self.fences:
            yield f"fences of {', '.join(self.fences)}: kube-scheduler gives these devices to everybody again"
        if not self.running and not self.waiting:
            yield "no gang runs or waits"


async def survey(cluster: Cluster) -> Survey:
    """Read the objects; kinds that are not installed have none."""
    reports = [status_views.gang(obj) for obj in await _installed(cluster, watched_resources.GANGS)]
    fences = await fence_controller.cluster_fences(cluster.connection)
    return Survey(
        running=tuple(
            sorted(one.key for one in reports if one.phase in (Phase.RESERVED, Phase.ADMITTED, Phase.RUNNING))
        ),
        waiting=tuple(sorted(one.key for one in reports if one.phase in (Phase.PENDING, Phase.EVICTED))),
        queues=tuple(meta.decode(Reader(obj)) for obj in await _installed(cluster, watched_resources.QUEUES)),
        fences=tuple(driver for driver, _ in fences.fences),
    )


async def _installed(cluster: Cluster, kind: Kind) -> list[dict[str, object]]:
    try:
        return [dict(obj) for obj in await cluster.list_objects(kind)]
    except ForbiddenError:
        raise
    except FixError:
        return []  # the CRD is gone already


def _counted(found: Sequence[str], noun: str) -> str:
    return f"{len(found)} {noun}{'' if len(found) == 1 else 's'}"


def _first(found: Sequence[str]) -> str:
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"{', '.join(found[:MOST_NAMED])}{more}"
