"""Templates of PersistentVolumeClaims in workloads, and the volumes that controllers add to pods for their claims."""

from collections.abc import Mapping
from itertools import islice

from admission.api.values.decoding import Json, Reader

FIELD = "volumeClaimTemplates"
MOST = 100
"""The most templates of one list that are read. The largest real workloads have some."""


def listed(holder: Reader, field: str = FIELD) -> tuple[Json, ...]:
    """Return the first MOST templates of a field."""
    return tuple(islice(holder.objects(field), MOST))


def name(template: Json) -> str:
    """Return the name of a template, which is the name of the volume as well."""
    return Reader(template).child("metadata").text("name")


def claim(claim_name: str, template: Json, namespace: str) -> Json:
    """Return the claim of a template as its controller makes it."""
    data = {"name": claim_name, "namespace": namespace}
    return {**template, "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": data}


def with_own(pod_template: Json, claims: Mapping[str, str]) -> Json:
    """Return a pod template with the volumes of a StatefulSet's pod, which replace those of the same names.

    claims: by the name of the volume.
    """
    if not claims:
        return pod_template
    spec = Reader(pod_template).object("spec")
    given = [volume for volume in Reader(spec).objects("volumes") if volume.get("name") not in claims]
    return {**pod_template, "spec": {**spec, "volumes": [*given, *_volumes(claims)]}}


def with_mounted(pod_template: Json, claims: Mapping[str, str]) -> Json:
    """Return a pod template with the volumes that JobSet adds: those that a container mounts (addVolumes, v0.12).

    claims: by the name of the volume.
    """
    if not claims:
        return pod_template
    spec = Reader(pod_template).child("spec")
    containers = (one for part in ("containers", "initContainers") for one in spec.children(part))
    mounted = {mount.text("name") for one in containers for mount in one.children("volumeMounts")}
    return with_own(pod_template, {volume: claim for volume, claim in claims.items() if volume in mounted})


def _volumes(claims: Mapping[str, str]) -> list[Json]:
    return [{"name": volume, "persistentVolumeClaim": {"claimName": claim}} for volume, claim in claims.items()]
