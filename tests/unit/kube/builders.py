"""Objects as a cluster holds them, no larger than a test needs."""

from typing import Any

from admission.api.kubernetes import pods
from admission.api.kubernetes.pods import Pod
from admission.api.values import names

PODS = "/api/v1/pods"


def a_pod(name: str = "a", *, gates: tuple[str, ...] = (names.GATE,), **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"containers": [{"name": "main"}], "schedulingGates": [{"name": gate} for gate in gates], **spec},
    }


def read(obj: dict[str, Any]) -> Pod:
    return pods.decode(obj)


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    """spec.affinity that demands one of these node selector terms."""
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"nodeAffinity": {key: {"nodeSelectorTerms": list(terms)}}}
