"""The objects of the smoke test: a Meter of pods, a namespace with a Queue, and a Job of two pods without devices.

Their names are fixed, so that rights can be given for these objects alone, and the next run removes what a killed one
left. The namespace carries a label, without which nothing of that name is touched.
"""

from admission.api.values import names
from admission.api.values.decoding import Json

NAME = "muster-smoke-test"
"""The name of every object, the namespace's included."""

SIZE = 2
"""The pods of the gang."""

OWNED = {"app.kubernetes.io/managed-by": NAME}

IMAGE = "busybox:1.37"


def meter() -> Json:
    """Return the Meter, which counts pods, so that the test needs no device and no driver."""
    return _muster("Meter", {"unit": "pod", "resources": [{"name": "pods"}]})


def namespace() -> Json:
    """Return the namespace, held to the restricted standard, which the pods keep."""
    labels = {**OWNED, "pod-security.kubernetes.io/enforce": "restricted"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAME, "labels": labels}}


def queue() -> Json:
    """Return the Queue, with quota for the gang and open to the namespace alone."""
    spec = {
        "quotas": [{"meter": NAME, "nominal": SIZE}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAME}},
    }
    return _muster("Queue", spec)


def job(image: str) -> Json:
    """Return the Job, whose pods end as soon as they run. image: one that has `true`."""
    container = {
        "name": "main",
        "image": image,
        "command": ["true"],
        "resources": {"requests": {"cpu": "1m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
    }
    spec = {
        "completions": SIZE,
        "parallelism": SIZE,
        "backoffLimit": 0,
        "template": {"metadata": {"labels": {names.QUEUE: NAME}}, "spec": pod},
    }
    metadata = {"name": NAME, "namespace": NAME, "labels": OWNED}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _muster(kind: str, spec: Json) -> Json:
    metadata = {"name": NAME, "labels": OWNED}
    return {"apiVersion": f"{names.GROUP}/{names.VERSION}", "kind": kind, "metadata": metadata, "spec": spec}
