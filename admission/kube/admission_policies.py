"""The ValidatingAdmissionPolicies that Muster keeps, as JSON: pure, written by `fence_controller`.

The API server evaluates them in every namespace and for every user, so that no outage of Muster's webhook lifts them.
Lifting one requires deleting its binding, which Muster watches. Every field is set, including those that the API server
would default, since the stored object is compared with the wanted one field by field.
"""

from collections.abc import Sequence
from typing import Any

from admission.api.kubernetes import device_taint_rules
from admission.api.values.decoding import Json

FENCE = "muster-fence"
"""Refuses claims and templates that tolerate a fence."""

COVERAGE = "muster-coverage"
"""Refuses claims and templates in the namespaces that the webhook does not see."""

_FENCE = device_taint_rules.FENCE

DEVICES = "dyn(object).spec.?spec.orValue(dyn(object).spec).?devices.orValue({})"
"""CEL: the `devices` of a claim's spec, or of the claim spec in a template."""

PATH = "request.kind.kind == 'ResourceClaimTemplate' ? 'spec.spec.devices' : 'spec.devices'"

REQUESTS = "variables.devices.?requests.orValue([])"

TOLERATES = (
    f"t.?effect.orValue('') in ['', '{_FENCE.effect}'] && t.?key.orValue('') in ['', '{_FENCE.key}']"
    f" && (t.?operator.orValue('') == 'Exists' || t.?value.orValue('') == '{_FENCE.value}')"
)
"""CEL over a toleration `t`: whether it tolerates a fence."""

EXACT = (
    f"{REQUESTS}.transformList(i, r, !r.?exactly.?adminAccess.orValue(false)"
    f" && r.?exactly.?tolerations.orValue([]).exists(t, {TOLERATES}),"
    " variables.path + '.requests[' + string(i) + '].exactly.tolerations['"
    f" + r.exactly.tolerations.transformList(k, t, {TOLERATES}, string(k))[0] + ']')"
)
"""CEL: the first toleration of each request that tolerates a fence, as the path of a field."""

ALTERNATIVES = (
    f"{REQUESTS}.transformList(i, r,"
    f" r.?firstAvailable.orValue([]).exists(o, o.?tolerations.orValue([]).exists(t, {TOLERATES})),"
    " variables.path + '.requests[' + string(i) + '].firstAvailable[' + r.firstAvailable.transformList(j, o,"
    f" o.?tolerations.orValue([]).exists(t, {TOLERATES}), string(j) + '].tolerations['"
    f" + o.tolerations.transformList(k, t, {TOLERATES}, string(k))[0])[0] + ']')"
)
"""CEL: the same for requests with alternatives."""


def fence() -> Json:
    """Return the spec of the policy that refuses claims and templates that tolerate a fence.

    Requests with admin access are allowed, since they do not allocate devices exclusively. Tolerations match as in
    kube-scheduler: `k8s.io/dynamic-resource-allocation/resourceclaim/devicetoleration.go` (v0.37.1).
    """
    variables = {"devices": DEVICES, "path": PATH, "exact": EXACT, "alternatives": ALTERNATIVES}
    message = (
        "(variables.exact + variables.alternatives)[0] + ': tolerates taint"
        f" {_FENCE.key}={_FENCE.value}:{_FENCE.effect}, by which Muster keeps devices for the gangs of its queues; name"
        " the key of the taint that you mean, or leave the toleration out'"
    )
    return _spec(variables, "size(variables.exact) == 0 && size(variables.alternatives) == 0", message)


def coverage(namespaces: Sequence[str]) -> Json:
    """Return the spec of the policy that refuses claims without admin access in these namespaces."""
    admin = f"{REQUESTS}.all(r, r.?exactly.?adminAccess.orValue(false))"
    message = (
        "variables.path + '.requests: Muster hands out all devices of this cluster, and does not see the pods of"
        " namespace ' + request.namespace + '; make the claim in another namespace'"
    )
    spec = _spec({"devices": DEVICES, "path": PATH}, admin, message)
    among = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
    spec["matchConstraints"]["namespaceSelector"] = {"matchExpressions": [among]}
    return spec


def binding(policy: str) -> Json:
    """Return the spec of the binding that enforces a policy everywhere."""
    return {"policyName": policy, "validationActions": ["Deny"]}


def probe(policy: str) -> Json:
    """Return a claim that a policy refuses, to be created as a dry run in Muster's own namespace."""
    exactly: dict[str, Any] = {"deviceClassName": "probe.muster.dev", "count": 1}
    if policy == FENCE:
        exactly["tolerations"] = [{"key": _FENCE.key, "operator": "Exists", "effect": _FENCE.effect}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"generateName": "muster-probe-"},
        "spec": {"devices": {"requests": [{"name": "probe", "exactly": exactly}]}},
    }


def _spec(variables: dict[str, str], expression: str, message: str) -> dict[str, Any]:
    rule = {
        "apiGroups": ["resource.k8s.io"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["resourceclaims", "resourceclaimtemplates"],
        "scope": "*",
    }
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": [rule],
        },
        "variables": [{"name": name, "expression": text} for name, text in variables.items()],
        "validations": [{"expression": expression, "messageExpression": message}],
    }
