"""The devices that a pod outside queues takes, as far as Meters count them."""

from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import ClaimSpec
from admission.api.kubernetes.pods import Pod, PodClaim
from admission.api.muster import meters
from admission.cli.cluster_options import Cluster
from admission.errors import MusterError
from admission.kube.cache import watched_resources
from admission.podpolicy import outside_queues
from admission.podpolicy.outside_queues import Asked

MOST_CLAIMS = 32
"""The most claims of a pod that are read."""


async def metered(pod: Pod, cluster: Cluster) -> list[str]:
    """Return the device classes and resources of a pod that Meters count; none where the user may not read them."""
    plugins = outside_queues.plugins_of(pod.containers)
    if not pod.claims and not plugins:
        return []
    try:
        known = [meters.decode(obj) for obj in await cluster.list_objects(watched_resources.METERS)]
        specs = [await _spec(pod, claim, cluster) for claim in pod.claims[:MOST_CLAIMS]]
    except MusterError:
        return []
    asked = Asked(
        classes=outside_queues.classes_of([spec for spec in specs if spec is not None]),
        plugins=plugins,
    )
    return asked.metered(known)


async def _spec(pod: Pod, claim: PodClaim, cluster: Cluster) -> ClaimSpec | None:
    """Return what a pod's claim asks for; None if there is no such claim or template."""
    namespace = pod.meta.namespace
    if claim.template:
        found = await cluster.get_object(watched_resources.TEMPLATES, claim.template, namespace)
        return claims.decode_template(found).spec if found else None
    found = await cluster.get_object(watched_resources.CLAIMS, claim.claim, namespace) if claim.claim else None
    return claims.decode(found).spec if found else None
