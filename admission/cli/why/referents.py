"""The names of what a gang's status refers to without naming it, as far as the user may read these objects.

The status is written for readers of the gang's namespace: objects of other namespaces have only a UID there. The API
server says which of them the user may list.
"""

from collections.abc import Iterable

from admission.api.muster import gang_references
from admission.api.muster.gangs import GangReport
from admission.api.values import references
from admission.api.values.references import EVERYWHERE, Kind as ReferentKind
from admission.cli.cluster_options import Cluster
from admission.errors import MusterError
from admission.kube.cache import watched_resources
from admission.kube.cache.watched_resources import Kind

_OTHERS = {
    ReferentKind.CLAIM: watched_resources.CLAIMS,
    ReferentKind.TEMPLATE: watched_resources.TEMPLATES,
    ReferentKind.POD: watched_resources.PODS,
}


async def named(report: GangReport, cluster: Cluster) -> GangReport:
    """Return a report with the names of all that the user may read of what it refers to."""
    if references.uids(gang_references.references_of(report)):
        report = gang_references.resolved(report, await _keys(cluster, watched_resources.GANGS, ("",)))
        for referent_kind, kind in _OTHERS.items():
            namespaces = _namespaces(report, referent_kind)
            report = gang_references.resolved(report, await _keys(cluster, kind, namespaces))
    return gang_references.for_reader(report, EVERYWHERE)


def _namespaces(report: GangReport, kind: ReferentKind) -> tuple[str, ...]:
    """Return the namespaces that have the nameless objects of a kind: those of their gangs, else all, as "".

    A gang whose name the user may not read has claims that the user may not read either.
    """
    nameless = [
        one
        for reference in gang_references.references_of(report)
        for one in reference.referents
        if one.kind is kind and one.uid and not one.key
    ]
    if any(not one.is_of_gang for one in nameless):
        return ("",)
    return tuple(sorted({one.gang.partition("/")[0] for one in nameless if one.gang}))


async def _keys(cluster: Cluster, kind: Kind, namespaces: Iterable[str]) -> dict[str, str]:
    """Return `namespace/name` by UID of the objects of a kind; nothing of what the user may not list."""
    found: dict[str, str] = {}
    for namespace in namespaces:
        try:
            objects = await cluster.list_objects(kind, namespace)
        except MusterError:
            continue
        for meta in (one["metadata"] for one in objects):
            found[meta.get("uid", "")] = f"{meta.get('namespace', '')}/{meta['name']}"
    return found
