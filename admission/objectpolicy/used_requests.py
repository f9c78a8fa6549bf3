"""Containers that use a request which no claim of their pod has: the API server takes them, and they get no device.

For `muster lint`. The kubelet gives a container the devices of the request that it names, which are none then
(`pkg/kubelet/cm/dra/claiminfo.go`, cdiDevicesAsList, v1.37.1).
"""

from collections.abc import Iterator
from typing import Any

from admission.api.kubernetes.claims import ClaimSpec
from admission.api.snapshot import Snapshot
from admission.api.values.decoding import Json, Reader
from admission.errors import Problem
from admission.workloads import template_labels

CONTAINERS = ("initContainers", "containers")


def unknown(obj: Json, namespace: str, snapshot: Snapshot) -> Iterator[Problem]:
    """Yield the requests that containers of a pod, or of an object's pod templates, name and no claim of theirs has.

    A claim or template that the snapshot does not have may have any request.
    """
    if (obj.get("apiVersion"), obj.get("kind")) == ("v1", "Pod"):
        yield from _of_pod(Reader(obj.get("spec"), "spec"), namespace, snapshot)
    for place in template_labels.pod_templates(obj):
        path = f"{template_labels.field_of(place.base)}.spec"
        yield from _of_pod(Reader(place.reader.raw("spec"), path), namespace, snapshot)


def _of_pod(spec: Reader, namespace: str, snapshot: Snapshot) -> Iterator[Problem]:
    specs = {claim.text("name"): _spec_of(claim, namespace, snapshot) for claim in spec.children("resourceClaims")}
    used = (
        use
        for kind in CONTAINERS
        for container in spec.children(kind)
        for use in container.child("resources").children("claims")
    )
    for use in used:
        name, request, claim_spec = use.text("name"), use.text("request"), specs.get(use.text("name"))
        known = [one.name for one in claim_spec.requests] if claim_spec is not None else []
        if request and known and request not in known:
            message = (
                f"claim {name} has no request {request!r}, so the container gets none of its devices; it has"
                f" {', '.join(known)}"
            )
            yield Problem(f"{use.path}.request", message)


def _spec_of(claim: Reader, namespace: str, snapshot: Snapshot) -> ClaimSpec | None:
    """Return the spec of one of a pod's claims, if the snapshot has the claim or its template."""
    found: Any = snapshot.claims.get(f"{namespace}/{claim.text('resourceClaimName')}")
    found = found or snapshot.templates.get(f"{namespace}/{claim.text('resourceClaimTemplateName')}")
    return found.spec if found is not None else None
