"""The priority of pods that are not created yet, as the API server will fill it in."""

from collections.abc import Mapping
from dataclasses import replace

from admission.api.kubernetes.pods import Pod
from admission.api.kubernetes.priorities import PriorityClass
from admission.api.values.decoding import Json


def prioritized(pod: Pod, body: Json, classes: Mapping[str, PriorityClass]) -> Pod:
    """Return the pod with the priority of its PriorityClass, or of the default one. body: the pod as JSON.

    As `plugin/pkg/admission/priority` (v1.37.1) does, but where several are the default: there any of them counts.
    """
    spec = body.get("spec") or {}
    if spec.get("priority") is not None:
        return pod
    named = classes.get(str(spec.get("priorityClassName")))
    found = named or next((known for known in classes.values() if known.is_default), None)
    return replace(pod, priority=found.value) if found else pod
