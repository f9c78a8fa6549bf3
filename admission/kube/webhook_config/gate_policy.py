"""The MutatingAdmissionPolicy that adds the gate to pods of Jobs whose template has all else that Muster adds.

So the API server need not show these pods to the webhook (`match_conditions.COMPLETE`). A pod that the policy did not
reach has no gate, and the webhook adds it: before Kubernetes 1.36, which serves no such policies by default, while the
policy is not in force yet, and after an error of it. It is taken away with the webhooks, and pods of running Jobs start
without a gate then.

`pod_policy` writes it beside its own.
"""

from admission.api.values import names
from admission.api.values.decoding import Json
from admission.kube.webhook_config import match_conditions, registration, webhook_rules

NAME = registration.NAME
"""Of the policy and of its binding."""

KINDS = {
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}

_MARKED = f"object.metadata.?annotations[?'{names.COMPLETE}'].orValue('') != ''"
_GATE = f"Object.spec.schedulingGates{{name: '{names.GATE}'}}"


def policy(*, namespace: str) -> Json:
    """Return the spec of the policy. namespace: Muster's own."""
    outside = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": list(registration.exempt(namespace)),
    }
    return {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {"matchExpressions": [outside]},
            "objectSelector": {"matchExpressions": [{"key": names.QUEUE, "operator": "Exists"}]},
            "resourceRules": [webhook_rules.pod("CREATE")],
        },
        "matchConditions": [
            {"name": "of-a-job", "expression": match_conditions.OF_JOB_CONTROLLER},
            {"name": "marked", "expression": _MARKED},
        ],
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": f"Object{{spec: Object.spec{{schedulingGates: [{_GATE}]}}}}"},
            }
        ],
    }


def binding() -> Json:
    """Return the spec of the binding that puts the policy in force wherever it matches."""
    return {"policyName": NAME}
