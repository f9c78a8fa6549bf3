"""Pods and claims as manifests, with the annotations that tell KWOK how they end."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.controlplane.fleet import DEVICE_CLASS, Manifest

GATE = "muster.dev/admission"
RUNTIME = "test.muster.dev/runtime"
FINISH = "test.muster.dev/finish"
NEVER_START = "test.muster.dev/never-start"
LINGER = "test.muster.dev/linger"


def device_request(name: str = "gpu", *, device_class: str = DEVICE_CLASS, count: int = 1) -> Manifest:
    """One request of exactly so many devices."""
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count}}


def claim_spec(*requests: Manifest, **devices: Any) -> Manifest:
    """The spec of a claim; without requests it asks for one GPU. `devices` adds constraints and config."""
    return {"devices": {"requests": list(requests) or [device_request()], **devices}}


def claim(name: str, *requests: Manifest, **devices: Any) -> Manifest:
    """A claim that pods name, alone or together."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": claim_spec(*requests, **devices),
    }


def claim_template(name: str, *requests: Manifest, **devices: Any) -> Manifest:
    """A template from which each pod gets its own claim."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": claim_spec(*requests, **devices)},
    }


def pod(
    name: str,
    *,
    template: str | None = None,
    claim: str | None = None,
    gates: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Manifest:
    """A pod of one container that uses one claim: its own from a template, or a named one."""
    sources = {"resourceClaimTemplateName": template, "resourceClaimName": claim}
    claims = [{"name": "gpu", key: source} for key, source in sources.items() if source]
    uses: Manifest = {"resources": {"claims": [{"name": "gpu"}]}} if claims else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})},
        "spec": {
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", **uses}],
            "resourceClaims": claims,
            "schedulingGates": [{"name": gate} for gate in gates],
            "terminationGracePeriodSeconds": 30,
            **spec,
        },
    }
