"""Pods: the fields that queueing, gangs and placement need."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from admission.api.kubernetes import active_deadline, meta, nodes, pod_requests
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Resources
from admission.api.kubernetes.pod_requests import NOTHING, ClaimedResources
from admission.api.scheduling import scheduling_rules
from admission.api.scheduling.scheduling_rules import NO_RULES, SchedulingRules
from admission.api.values import names, selectors
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import NodeName
from admission.api.values.selectors import NodeSelector, Toleration

DEFAULT_SCHEDULER = "default-scheduler"
"""The profile of kube-scheduler for pods that name none."""

FINISHED = frozenset({"Succeeded", "Failed"})
NOT_BOUND = ("Unschedulable", "SchedulerError")
"""Reasons of PodScheduled: a filter refused the pod, or binding it failed, such as a volume that was not provisioned
(pkg/scheduler/schedule_one.go, handleSchedulingFailure, v1.37.1)."""

MOST_OF_MESSAGE = 400
"""Characters that are kept of what kube-scheduler says of a pod."""


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

    requests: the total of its containers, as kube-scheduler counts it. given: what the kubelet has given it instead,
    while it is resized in place. containers: init containers, then the others;
    only if one of them requests an extended resource, which a DeviceClass may serve. generated_claims: from status, the
    pod's own name of a claim → the claim made from its template.
    """

    meta: Meta
    node: NodeName = NodeName("")
    nominated: NodeName = NodeName("")
    """The node that is kept for it until it is bound (`status.nominatedNodeName`), as after a preemption."""
    gates: tuple[str, ...] = ()
    phase: str = "Pending"
    ready: bool = False
    claims: tuple[PodClaim, ...] = ()
    generated_claims: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    """The name of its PodGroup of Kubernetes; it never changes."""
    requests: Resources = field(default_factory=dict)
    given: Resources | None = None
    older: Resources | None = None
    """What kube-scheduler 1.36 counts instead of its requests, while several containers are resized; None: the same."""
    claimed: ClaimedResources = NOTHING
    """What devices of its claims take of its node beside that."""
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
    unschedulable: str = ""
    """Why kube-scheduler does not bind it, in its words, of which the end is cut off; empty where it does not say."""
    scheduler: str = DEFAULT_SCHEDULER
    service_account: str = ""
    runtime_class: str = ""
    mirror: bool = False
    """The mirror of a static pod, made by the kubelet: the pod runs already and cannot be held."""

    @property
    def gated(self) -> bool:
        """Whether Muster's gate still holds the pod."""
        return names.GATE in self.gates

    @property
    def other_gates(self) -> tuple[str, ...]:
        """Return the gates that hold it and that others have to open."""
        return tuple(gate for gate in self.gates if gate != names.GATE)

    @property
    def finished(self) -> bool:
        return self.phase in FINISHED

    @property
    def taken(self) -> Resources:
        """Return what it takes of its node: what it was given, which a resize in place changes when it is done."""
        return self.requests if self.given is None else self.given

    @property
    def counted(self) -> Resources:
        """Return what kube-scheduler counts of it on its node: its requests, and what its devices take there."""
        return nodes.total((self.requests, self.claimed.taken))

    @property
    def counted_by_1_36(self) -> Resources:
        """Return what kube-scheduler 1.36 counts of it on its node."""
        return self.counted if self.older is None else nodes.total((self.older, self.claimed.taken))

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
    requested = pod_requests.decode(spec, status)
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    result = Pod(
        meta=own,
        node=NodeName(spec.text("nodeName")),
        nominated=NodeName(status.text("nominatedNodeName")),
        gates=tuple(gate.required("name") for gate in spec.children("schedulingGates")),
        phase=status.text("phase", "Pending"),
        ready=any(
            condition.text("type") == "Ready" and condition.text("status") == "True"
            for condition in status.children("conditions")
        ),
        claims=decode_claims(spec),
        generated_claims=decode_generated(status),
        group=spec.child("schedulingGroup").text("podGroupName"),
        requests=requested.counted,
        given=requested.taken,
        older=requested.older,
        claimed=pod_requests.decode_claimed(spec, status),
        containers=decode_containers(spec),
        node_selector=spec.pairs("nodeSelector"),
        affinity=selectors.decode_nodes(node_affinity.child(required)) if required in node_affinity else None,
        tolerations=tuple(map(selectors.decode_toleration, spec.children("tolerations"))),
        features=scheduling_rules.node_features(spec),
        rules=scheduling_rules.decode(spec, namespace=own.namespace, labels=own.labels),
        priority=spec.integer("priority"),
        deadline=active_deadline.read(spec),
        started=status.time("startTime"),
        unschedulable=_unschedulable(status),
        scheduler=spec.text("schedulerName", DEFAULT_SCHEDULER),
        service_account=spec.text("serviceAccountName"),
        runtime_class=spec.text("runtimeClassName"),
        mirror="kubernetes.io/config.mirror" in reader.child("metadata").pairs("annotations"),
    )
    reader.finish("Pod", result.meta.key)
    return result


def _unschedulable(status: Reader) -> str:
    """Return the message of the condition PodScheduled, which FailedScheduling Events repeat, without preemption's."""
    for condition in status.children("conditions"):
        if condition.text("type") == "PodScheduled" and condition.text("reason") in NOT_BOUND:
            message = condition.text("message").partition(" preemption: ")[0]
            message = message if len(message) <= MOST_OF_MESSAGE else f"{message[: MOST_OF_MESSAGE - 1]}…"
            # Whoever may write the status of pods has words in logs and on terminals of others with this.
            return "".join(letter if letter.isprintable() else " " for letter in message)
    return ""


def decode_claims(spec: Reader) -> tuple[PodClaim, ...]:
    """Decode the claims that a pod or PodGroup names."""
    return tuple(map(_decode_claim, spec.children("resourceClaims")))


def decode_generated(status: Reader) -> dict[str, str]:
    """Return the claims that were made for a pod or PodGroup, by its own names of them."""
    return {
        entry.text("name"): entry.text("resourceClaimName")
        for entry in status.children("resourceClaimStatuses")
        if "resourceClaimName" in entry
    }


def _decode_claim(reader: Reader) -> PodClaim:
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
        Container(stage=stage, requests=tuple(sorted(pod_requests.of_container(container).items())))
        for stage, container in staged
    )
    return containers if any("/" in name for container in containers for name, _ in container.requests) else ()
