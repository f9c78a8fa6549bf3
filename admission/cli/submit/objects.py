"""The objects of a submitted Job: the Job, and the template of its pods' claims. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from admission.api.values import names
from admission.api.values.decoding import Json

CLAIM = "devices"
"""The name of the claim in each pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What is submitted. devices: by class, how many each pod gets. requests: CPU and memory of each pod."""

    name: str
    namespace: str
    image: str
    command: Sequence[str] = ()
    pods: int = 1
    devices: Mapping[str, int] = field(default_factory=dict)
    queue: str = ""
    priority_class: str = ""
    runtime: str = ""
    requests: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def template(one: Submission) -> Json | None:
    """Return the ResourceClaimTemplate; None if the pods get no devices."""
    if not one.devices:
        return None
    requests = [
        {
            "name": "device" if len(one.devices) == 1 else f"device-{at}",
            "exactly": {"deviceClassName": name, "allocationMode": "ExactCount", "count": count},
        }
        for at, (name, count) in enumerate(one.devices.items())
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": one.name, "namespace": one.namespace},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }


def job(one: Submission) -> Json:
    """Return the Job. The label of its queue is in its pod template, too, which is what pods are judged by."""
    labels = {
        **({names.QUEUE: one.queue} if one.queue else {}),
        **({names.PRIORITY_CLASS: one.priority_class} if one.priority_class else {}),
    }
    annotations = {names.RUNTIME: one.runtime} if one.runtime else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": one.name,
            "namespace": one.namespace,
            **({"labels": dict(labels)} if labels else {}),
        },
        "spec": {
            "completions": one.pods,
            "parallelism": one.pods,
            "completionMode": "Indexed",
            "template": {
                "metadata": {
                    **({"labels": labels} if labels else {}),
                    **({"annotations": annotations} if annotations else {}),
                },
                "spec": _pod(one),
            },
        },
    }


def _pod(one: Submission) -> Json:
    resources: Json = {
        **({"requests": dict(one.requests)} if one.requests else {}),
        **({"claims": [{"name": CLAIM}]} if one.devices else {}),
    }
    environment = [{"name": name, "value": text} for name, text in one.environment.items()]
    container = {
        "name": "main",
        "image": one.image,
        **({"command": list(one.command)} if one.command else {}),
        **({"env": environment} if environment else {}),
        **({"resources": resources} if resources else {}),
    }
    return {
        "restartPolicy": "Never",
        **({"resourceClaims": [{"name": CLAIM, "resourceClaimTemplateName": one.name}]} if one.devices else {}),
        "containers": [container],
    }
