"""Reviews of pods, and the small cluster that the pods come to."""

from dataclasses import dataclass, field
from typing import Any

from admission.api.kubernetes import claims, devices, nodes
from admission.api.kubernetes.admission_review import Review
from admission.api.muster import meters, queues
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import MeterName, QueueName
from admission.errors import MalformedObjectError, Problem
from admission.podpolicy.admission import Rules
from admission.review import reviewer
from admission.review.caches import ReviewCaches

CONTROLLER = "system:serviceaccount:muster-system:muster"
RULES = Rules(controller=CONTROLLER)
GATES = [{"name": names.GATE}]


@dataclass
class MemoryView:
    """A View over a snapshot that the test has made."""

    known: Snapshot = field(default_factory=Snapshot)
    synced: bool = True

    def snapshot(self) -> Snapshot:
        return self.known


CONTAINER = {"name": "main", "image": "registry.example/train:1"}


def a_pod(
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    gates: list[Any] | None = None,
    templates: tuple[str, ...] = (),
    claims: tuple[str, ...] = (),
    **spec: Any,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"generateName": "train-", "namespace": "ml"}
    if labels is not None:
        metadata["labels"] = labels
    if annotations is not None:
        metadata["annotations"] = annotations
    if gates is not None:
        spec["schedulingGates"] = gates
    sources = [{"name": f"t{i}", "resourceClaimTemplateName": name} for i, name in enumerate(templates)]
    sources += [{"name": f"c{i}", "resourceClaimName": name} for i, name in enumerate(claims)]
    if sources:
        spec["resourceClaims"] = sources
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [dict(CONTAINER)], "schedulerName": "default-scheduler", **spec},
    }


def held(queue: str = "team-a", **rest: Any) -> dict[str, Any]:
    """Return a pod as the mutating webhook leaves it, made by alice."""
    annotations = {names.USER: "alice", **rest.pop("annotations", {})}
    labels = {names.QUEUE: queue, **rest.pop("labels", {})}
    return a_pod(labels=labels, annotations=annotations, gates=rest.pop("gates", GATES), **rest)


def a_job(**metadata: Any) -> dict[str, Any]:
    """Return a Job whose pod template has this metadata; `metadata=None` for a template without any."""
    template: dict[str, Any] = {"metadata": metadata, "spec": {"containers": []}}
    if metadata == {"metadata": None}:
        del template["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {"template": template},
    }


def a_queue(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def a_meter(name: str, *classes: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"sources": [{"deviceClasses": list(classes), "count": {}}]}}


def exactly(name: str, device_class: str, count: int = 1) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": device_class, "count": count}}


def every(name: str, device_class: str) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": device_class, "allocationMode": "All"}}


def either(name: str, *alternatives: tuple[str, str, int]) -> dict[str, Any]:
    options = [{"name": n, "deviceClassName": c, "count": count} for n, c, count in alternatives]
    return {"name": name, "firstAvailable": options}


class World:
    """Fluent builder of a snapshot. Namespace `ml` has the label team=a."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, str]] = {"ml": {"team": "a"}}
        self._queues: list[dict[str, Any]] = []
        self._meters: list[dict[str, Any]] = [a_meter("gpus", "gpu.example.com")]
        self._classes: dict[str, str] = {}
        self._templates: dict[str, dict[str, Any]] = {}
        self._claims: dict[str, dict[str, Any]] = {}
        self._malformed: dict[tuple[str, str], MalformedObjectError] = {}

    def namespace(self, name: str, **labels: str) -> "World":
        self._namespaces[name] = labels
        return self

    def queue(self, name: str, *, team: str | None = "a", **spec: Any) -> "World":
        """Add a queue open to namespaces of that team; None: a parent."""
        if team is not None:
            spec.setdefault("namespaceSelector", {"matchLabels": {"team": team}})
        self._queues.append(a_queue(name, **spec))
        return self

    def deleted(self, queue: str) -> "World":
        """Let a queue be deleted while something keeps it."""
        (found,) = [one for one in self._queues if one["metadata"]["name"] == queue]
        found["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
        return self

    def listed(self, meter: str, *resources: str) -> "World":
        """Add a meter that counts these extended resources."""
        self._meters.append({"metadata": {"name": meter}, "spec": {"extendedResources": list(resources)}})
        return self

    def rated(self, meter: str, *resources: dict[str, Any]) -> "World":
        """Add a meter that counts what pods request of nodes."""
        self._meters.append({"metadata": {"name": meter}, "spec": {"resources": list(resources)}})
        return self

    def meter_of(self, name: str, device_class: str, resource: str) -> "World":
        """Replace a meter by one that counts devices of a class, and an extended resource."""
        self._meters = [meter for meter in self._meters if meter["metadata"]["name"] != name]
        made = a_meter(name, device_class)
        self._meters.append({**made, "spec": {**made["spec"], "extendedResources": [resource]}})
        return self

    def offered(self, device_class: str, resource: str) -> "World":
        """Add a class that offers an extended resource."""
        self._classes[device_class] = resource
        return self

    def template(self, name: str, *requests: dict[str, Any]) -> "World":
        self._templates[name] = {"spec": {"spec": {"devices": {"requests": list(requests)}}}}
        return self

    def claim(self, name: str, *requests: dict[str, Any], allocated: bool = False) -> "World":
        status: dict[str, Any] = {"allocation": {"devices": {"results": []}}} if allocated else {}
        self._claims[name] = {"spec": {"devices": {"requests": list(requests)}}, "status": status}
        return self

    def broken_queue(self, name: str) -> "World":
        problem = Problem("spec.quotas[0].nominal", "'x' is not a quantity")
        self._malformed["Queue", name] = MalformedObjectError("Queue", name, (problem,))
        return self

    def build(self) -> Snapshot:
        def at(name: str, obj: dict[str, Any]) -> dict[str, Any]:
            return {**obj, "metadata": {"name": name, "namespace": "ml"}}

        return Snapshot(
            namespaces={
                name: nodes.decode_namespace({"metadata": {"name": name, "labels": labels}})
                for name, labels in self._namespaces.items()
            },
            queues={QueueName(q["metadata"]["name"]): queues.decode(q) for q in self._queues},
            meters={MeterName(m["metadata"]["name"]): meters.decode(m) for m in self._meters},
            classes={
                name: devices.decode_class({"metadata": {"name": name}, "spec": {"extendedResourceName": resource}})
                for name, resource in self._classes.items()
            },
            templates={f"ml/{n}": claims.decode_template(at(n, t)) for n, t in self._templates.items()},
            claims={f"ml/{n}": claims.decode(at(n, c)) for n, c in self._claims.items()},
            malformed=self._malformed,
        )


def a_cluster() -> World:
    """Return a cluster with queue `team-a`, which namespace `ml` may enter, and `team-b`, which it may not."""
    return World().queue("team-a").queue("team-b", team="b").queue("research", team=None)


_VIEW = MemoryView(a_cluster().build())
CACHES = ReviewCaches()


def mutate(review: Review) -> Any:
    """Answer a review as the webhook does; its cluster is `a_cluster`."""
    return reviewer.mutate(review, _VIEW, caches=CACHES)


def validate(review: Review) -> Any:
    """Answer a review as the webhook does; its cluster is `a_cluster`."""
    return reviewer.validate(review, _VIEW, rules=RULES, caches=CACHES)


def creation(pod: dict[str, Any] | None, **rest: Any) -> Review:
    return _review("CREATE", obj=pod, **rest)


def update(old: dict[str, Any], new: dict[str, Any], **rest: Any) -> Review:
    return _review("UPDATE", old=old, obj=new, **rest)


def _review(operation: str, **rest: Any) -> Review:
    fields: dict[str, Any] = {
        "uid": "u-1",
        "group": "",
        "version": "v1",
        "resource": "pods",
        "kind": "Pod",
        "operation": operation,
        "namespace": "ml",
        "username": "alice",
    }
    return Review(**{**fields, **rest})
