"""Pods: the fields that queueing, gangs and placement need."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from admission.api.kubernetes import active_deadline, meta, nodes, scheduling_rules
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Resources
from admission.api.kubernetes.scheduling_rules import NO_RULES, SchedulingRules
from admission.api.values import names, quantities, selectors
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import NodeName
from admission.api.values.selectors import NodeSelector, Toleration

FINISHED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodClaim:
    """One of spec.resourceClaims: the pod's own name for a claim, and the claim or the template it refers to."""

    name: str
    claim: str | None = None
    template: str | None = None


class Stage(StrEnum):
    """When a container runs."""

    INIT = "init"
    """Until it ends, before the next init container starts."""
    SIDECAR = "sidecar"
    """From its turn among the init containers to the end of the pod."""
    MAIN = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """The requests of one container: every resource that it names, sorted by name, including amounts of 0."""

    stage: Stage
    requests: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod.

    requests: the total of its containers, as kube-scheduler counts it. containers: init containers, then the others;
    only if one of them requests an extended resource, which a DeviceClass may serve. generated_claims: from status, the
    pod's own name of a claim → the claim made from its template.
    """

    meta: Meta
    node: NodeName = NodeName("")
    gates: tuple[str, ...] = ()
    phase: str = "Pending"
    ready: bool = False
    claims: tuple[PodClaim, ...] = ()
    generated_claims: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    """The name of its PodGroup of Kubernetes; it never changes."""
    requests: Resources = field(default_factory=dict)
    containers: tuple[Container, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: NodeSelector | None = None
    tolerations: tuple[Toleration, ...] = ()
    features: tuple[str, ...] = ()
    """What its node has to declare in `status.declaredFeatures`."""
    rules: SchedulingRules = NO_RULES
    """What it demands of the pods beside it."""
    priority: int = 0
    deadline: timedelta | None = None
    """The time after its start when the kubelet ends it (`activeDeadlineSeconds`); None: never."""
    started: datetime | None = None
    """When the kubelet accepted it."""
    scheduler: str = "default-scheduler"
    service_account: str = ""
    mirror: bool = False
    """The mirror of a static pod, made by the kubelet: the pod runs already and cannot be held."""

    @property
    def gated(self) -> bool:
        """Whether Muster's gate still holds the pod."""
        return names.GATE in self.gates

    @property
    def finished(self) -> bool:
        return self.phase in FINISHED

    @property
    def queue(self) -> str:
        return self.meta.labels.get(names.QUEUE, "")

    @property
    def user(self) -> str:
        """Return the user who created it, or its workload; empty where the webhook has not recorded that."""
        return self.meta.annotations.get(names.USER, "")

    def claim_name(self, claim: PodClaim) -> str | None:
        """Return the name of the ResourceClaim for one of the pod's claims; None before it is created."""
        return claim.claim or self.generated_claims.get(claim.name)


def decode(obj: Json) -> Pod:
    """Decode a Pod."""
    reader = Reader(obj)
    spec, status, own = reader.child("spec"), reader.child("status"), meta.decode(reader)
    node_affinity = spec.child("affinity").child("nodeAffinity")
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    result = Pod(
        meta=own,
        node=NodeName(spec.text("nodeName")),
        gates=tuple(gate.required("name") for gate in spec.children("schedulingGates")),
        phase=status.text("phase", "Pending"),
        ready=any(
            condition.text("type") == "Ready" and condition.text("status") == "True"
            for condition in status.children("conditions")
        ),
        claims=tuple(map(_claim, spec.children("resourceClaims"))),
        generated_claims={
            entry.text("name"): entry.text("resourceClaimName")
            for entry in status.children("resourceClaimStatuses")
            if "resourceClaimName" in entry
        },
        group=spec.child("schedulingGroup").text("podGroupName"),
        requests=decode_requests(spec, status),
        containers=decode_containers(spec),
        node_selector=spec.pairs("nodeSelector"),
        affinity=selectors.decode_nodes(node_affinity.child(required)) if required in node_affinity else None,
        tolerations=tuple(map(selectors.decode_toleration, spec.children("tolerations"))),
        features=scheduling_rules.node_features(spec),
        rules=scheduling_rules.decode(spec, namespace=own.namespace, labels=own.labels),
        priority=spec.integer("priority"),
        deadline=active_deadline.read(spec),
        started=status.time("startTime"),
        scheduler=spec.text("schedulerName", "default-scheduler"),
        service_account=spec.text("serviceAccountName"),
        mirror="kubernetes.io/config.mirror" in reader.child("metadata").pairs("annotations"),
    )
    reader.finish("Pod", result.meta.key)
    return result


def _claim(reader: Reader) -> PodClaim:
    claim = PodClaim(
        name=reader.required("name"),
        claim=reader.optional("resourceClaimName"),
        template=reader.optional("resourceClaimTemplateName"),
    )
    if (claim.claim is None) == (claim.template is None):
        reader.problem("", "needs exactly one of resourceClaimName and resourceClaimTemplateName")
    return claim


def decode_containers(spec: Reader) -> tuple[Container, ...]:
    """Return the containers of a pod if one of them requests a resource with a domain in its name; else none."""
    staged = [
        *(
            (Stage.SIDECAR if container.text("restartPolicy") == "Always" else Stage.INIT, container)
            for container in spec.children("initContainers")
        ),
        *((Stage.MAIN, container) for container in spec.children("containers")),
    ]
    containers = tuple(
        Container(stage=stage, requests=tuple(sorted(_container(container).items()))) for stage, container in staged
    )
    return containers if any("/" in name for container in containers for name, _ in container.requests) else ()


def decode_requests(spec: Reader, status: Reader | None = None) -> Resources:
    """Return a pod's total requests as `k8s.io/component-helpers/resource` PodRequests does (v0.37.1).

    While a container is resized, what its status says that it has been given counts as well, whichever is more.
    Pod-level requests and overhead are instead of, and on top of, what containers request. More than 64 bits hold, as
    no node can have, is a problem. status: None of a pod that does not run.
    """
    status = status or Reader({})
    total = wanted = _aggregated(spec, _container)
    given = _given(spec, status)
    if given is not None:
        total = given if _is_infeasible(status) else _maximum(total, given)
    if "resources" in spec:
        total |= _of_pod(spec.child("resources"), status, wanted)
    total = _sum((total, nodes.decode_resources(spec, "overhead"), {"pods": 1}))
    for resource, amount in total.items():
        if amount > quantities.INT64:
            spec.problem("containers", f"request more {resource} than any node can have; write a smaller amount")
    return total


def _aggregated(spec: Reader, requests_of: Callable[[Reader], Resources]) -> dict[str, int]:
    """Return what containers request together.

    Containers and sidecars (init containers that restart always) run together; any other init container runs alone
    beside the sidecars before it.
    """
    running = _sum(requests_of(container) for container in spec.children("containers"))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.children("initContainers"):
        requests = requests_of(container)
        if container.text("restartPolicy") == "Always":
            sidecars = _sum((sidecars, requests))
            requests = {}
        peak = _maximum(peak, _sum((sidecars, requests)))
    return _maximum(_sum((running, sidecars)), peak)


def _given(spec: Reader, status: Reader) -> dict[str, int] | None:
    """Return what containers are allocated, or have if that is more; None if no status says that."""
    statuses = {
        one.text("name"): one
        for name in ("containerStatuses", "initContainerStatuses")
        for one in status.children(name)
        if "resources" in one or "allocatedResources" in one
    }
    if not statuses:
        return None
    infeasible = _is_infeasible(status)

    def allocated(container: Reader) -> Resources:
        own = statuses.get(container.text("name"))
        if own is not None and "allocatedResources" in own:
            return nodes.decode_resources(own, "allocatedResources")
        return {} if infeasible else _container(container)

    def actual(container: Reader) -> Resources:
        own = statuses.get(container.text("name"))
        if own is not None and "resources" in own:
            return nodes.decode_resources(own.child("resources"), "requests")
        return allocated(container)

    return _maximum(_aggregated(spec, allocated), _aggregated(spec, actual))


def _is_infeasible(status: Reader) -> bool:
    """Return whether the kubelet refused a resize for good, so that the spec does not count."""
    return any(
        one.text("type") == "PodResizePending" and one.text("reason") == "Infeasible"
        for one in status.children("conditions")
    )


def _of_pod(resources: Reader, status: Reader, containers: Resources) -> dict[str, int]:
    """Return the pod-level requests, as the API server completes them (`DefaultPodLevelResources`, v1.37).

    containers: what containers request by their specs, which comes before a pod-level limit.
    """
    limits, requests = (nodes.decode_resources(resources, name) for name in ("limits", "requests"))
    if not limits and not requests:
        return {}
    of_containers = {name: amount for name, amount in containers.items() if name in {"cpu", "memory"}}
    found = {
        **{name: amount for name, amount in limits.items() if name not in containers},
        **of_containers,
        **requests,
    }
    if "resources" in status:
        given = _maximum(
            nodes.decode_resources(status.child("resources"), "requests"),
            nodes.decode_resources(status, "allocatedResources"),
        )
        return given if _is_infeasible(status) else _maximum(found, given)
    return found


def _container(container: Reader) -> dict[str, int]:
    """Return requests; a limit without a request counts as the request, as the API server defaults it."""
    resources = container.child("resources")
    return nodes.decode_resources(resources, "limits") | nodes.decode_resources(resources, "requests")


def _sum(parts: Iterable[Resources]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for resource, amount in part.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def _maximum(left: Resources, right: Resources) -> dict[str, int]:
    return {resource: max(left.get(resource, 0), right.get(resource, 0)) for resource in {*left, *right}}
