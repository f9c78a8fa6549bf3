"""Decoded claims and templates as the JSON of resource.k8s.io/v1 again, for expressions.

The snapshot keeps typed values, a tenth the size of the JSON. The JSON has every request, constraint and configuration
of the spec; amounts are written in their shortest form.
"""

from typing import Any

from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import Claim, ClaimSpec, ClaimTemplate, Constraint, DeviceRequest, Request
from admission.api.values import quantities
from admission.api.values.decoding import Json
from admission.api.values.selectors import Toleration


def encode_claim(claim: Claim) -> Json:
    """Return a claim without its status."""
    meta = claim.meta
    metadata: dict[str, Any] = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
    metadata |= _non_empty(labels=dict(meta.labels), annotations=dict(meta.annotations))
    return {"apiVersion": claims.VERSION, "kind": "ResourceClaim", "metadata": metadata, "spec": _spec(claim.spec)}


def encode_template(template: ClaimTemplate) -> Json:
    """Return the claim that a template makes, with the metadata known so far."""
    metadata = {**template.claim_metadata, "namespace": template.meta.namespace}
    return {"apiVersion": claims.VERSION, "kind": "ResourceClaim", "metadata": metadata, "spec": _spec(template.spec)}


def _spec(spec: ClaimSpec) -> Json:
    requests = [_request(request) for request in spec.requests]
    constraints = [_constraint(constraint) for constraint in spec.constraints]
    return {"devices": _non_empty(requests=requests, constraints=constraints, config=list(spec.config))}


def _request(request: Request) -> Json:
    if request.first_available:
        options = [{"name": option.name, **_device_request(option)} for option in request.alternatives]
        return {"name": request.name, "firstAvailable": options}
    return {"name": request.name, "exactly": _device_request(request.alternatives[0])}


def _device_request(device_request: DeviceRequest) -> Json:
    fields: dict[str, Any] = {"deviceClassName": device_request.device_class, "allocationMode": device_request.mode}
    if device_request.mode == claims.EXACT_COUNT:
        fields["count"] = device_request.count
    if device_request.admin_access is not None:
        fields["adminAccess"] = device_request.admin_access
    if device_request.capacity is not None:
        requests = {name: quantities.write(amount) for name, amount in device_request.capacity.items()}
        fields["capacity"] = _non_empty(requests=requests)
    selectors = [{"cel": {"expression": text}} for text in device_request.selectors]
    tolerations = [_toleration(toleration) for toleration in device_request.tolerations]
    return {**fields, **_non_empty(selectors=selectors, tolerations=tolerations)}


def _toleration(toleration: Toleration) -> Json:
    seconds = {} if toleration.seconds is None else {"tolerationSeconds": toleration.seconds}
    texts = _non_empty(key=toleration.key, value=toleration.value, effect=toleration.effect)
    return {**texts, "operator": toleration.operator, **seconds}


def _constraint(constraint: Constraint) -> Json:
    return _non_empty(
        requests=list(constraint.requests), matchAttribute=constraint.match, distinctAttribute=constraint.distinct
    )


def _non_empty(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not empty: the API server stores no others."""
    return {name: value for name, value in fields.items() if value}
