"""The names of what a status refers to without naming it, as far as the user may read these objects.

The status of a Gang is written for readers of its namespace, that of a Queue for readers of any: objects of other
namespaces have only a UID there. The API server says which of them the user may list.
"""

from collections.abc import Iterable

from admission.api.muster import gang_references, queue_references
from admission.api.muster.gangs import GangReport
from admission.api.muster.status_reports import QueueReport
from admission.api.values import references
from admission.api.values.decoding import Json
from admission.api.values.references import EVERYWHERE, Kind as ReferentKind, References
from admission.cli.cluster_options import Cluster
from admission.errors import ForbiddenError, MusterError
from admission.kube.cache import watched_resources
from admission.kube.cache.watched_resources import Kind

MOST_NAMESPACES = 100
"""The most namespaces that are asked one by one, where the user may not list the objects of all."""

_OTHERS = {
    ReferentKind.CLAIM: watched_resources.CLAIMS,
    ReferentKind.TEMPLATE: watched_resources.TEMPLATES,
    ReferentKind.POD: watched_resources.PODS,
}


async def in_gang(report: GangReport, cluster: Cluster) -> GangReport:
    """Return a gang's status with the names of all that the user may read of what it refers to."""
    keys = await _keys(gang_references.references_of(report), cluster)
    return gang_references.for_reader(gang_references.resolved(report, keys), EVERYWHERE)


async def in_queues(reports: Iterable[QueueReport], cluster: Cluster) -> list[QueueReport]:
    """Return the statuses of queues with the names of all that the user may read of what they refer to."""
    reports = [*reports]
    keys = await _keys(tuple(reference for report in reports for reference in report.references), cluster)
    return [queue_references.for_reader(queue_references.resolved(report, keys), EVERYWHERE) for report in reports]


async def _keys(found: References, cluster: Cluster) -> dict[str, str]:
    """Return `namespace/name` by UID of what references have without a name."""
    if not references.uids(found):
        return {}
    keys = await _listed(cluster, watched_resources.GANGS, ("",))
    for referent_kind, kind in _OTHERS.items():
        keys |= await _listed(cluster, kind, _namespaces(references.resolve(found, keys), referent_kind))
    return keys


def _namespaces(found: References, kind: ReferentKind) -> tuple[str, ...]:
    """Return the namespaces that have the nameless objects of a kind: those of their gangs, else all, as "".

    A gang whose name the user may not read has claims that the user may not read either.
    """
    referents = [one for reference in found for one in reference.referents if one.kind is kind]
    nameless = [one for one in referents if one.uid and not one.key]
    if any(not one.is_of_gang for one in nameless):
        return ("",)
    return tuple(sorted({one.gang.partition("/")[0] for one in nameless if one.gang}))


async def _listed(cluster: Cluster, kind: Kind, namespaces: Iterable[str]) -> dict[str, str]:
    """Return `namespace/name` by UID of the objects of a kind; nothing of what the user may not list."""
    found: dict[str, str] = {}
    for namespace in namespaces:
        for meta in (one["metadata"] for one in await _objects(cluster, kind, namespace)):
            found[meta.get("uid", "")] = f"{meta.get('namespace', '')}/{meta['name']}"
    return found


async def _objects(cluster: Cluster, kind: Kind, namespace: str) -> list[Json]:
    """Return the objects of a kind that the user may list, of one namespace or, for "", of all."""
    try:
        return await cluster.list_objects(kind, namespace)
    except ForbiddenError:
        if namespace or kind == watched_resources.NAMESPACES:
            return []
    except MusterError:
        return []
    # Who may not list those of all namespaces may list those of some.
    known = await _objects(cluster, watched_resources.NAMESPACES, "")
    names = sorted(one["metadata"]["name"] for one in known)[:MOST_NAMESPACES]
    return [obj for name in names for obj in await _objects(cluster, kind, name)]
