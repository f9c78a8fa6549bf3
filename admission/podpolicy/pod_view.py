"""The fields of a pod that the webhook reads: far fewer than the planner, since this runs for every new pod.

`kubernetes.pods` reads a whole pod. Here only the fields are read by which `admission` decides; the API server
validates all others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

import msgspec

from admission.api.kubernetes import meta, pod_requests, pods
from admission.api.kubernetes.meta import Owner
from admission.api.kubernetes.nodes import Resources
from admission.api.kubernetes.pods import Container, PodClaim
from admission.api.values import names, typed_json
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import Uid
from admission.api.values.work_budget import Work, WorkBudget
from admission.errors import MalformedObjectError, Problem

FEW = 32
"""Parts of a pod that take no time to speak of."""

MIRROR = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod at admission. labels and gates: None if the pod has no such field, since a patch must then create it.

    containers: as of a Pod. spec: for what is read only when asked for.
    """

    namespace: str
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    gates: tuple[str, ...] | None = None
    node: str = ""
    scheduler: str = ""
    claims: tuple[PodClaim, ...] = ()
    containers: tuple[Container, ...] = ()
    controller: Owner | None = None
    spec: "SpecHead | None" = None

    def requests(self) -> Resources:
        """Return what the pod requests of nodes, as of a Pod. Raises MalformedObjectError for a wrong value."""
        reader = Reader({"spec": self.spec or {}})
        requests = pod_requests.decode_spec(reader.child("spec"))
        reader.finish("Pod", self.namespace)
        return requests

    @property
    def queue(self) -> str:
        """Return the queue that the pod names, or ""."""
        return (self.labels or {}).get(names.QUEUE, "")

    @property
    def gated(self) -> bool:
        return names.GATE in (self.gates or ())

    @property
    def is_of_job(self) -> bool:
        """Whether the owner reference says that a Job controls the pod."""
        owner = self.controller
        return owner is not None and owner.kind == "Job" and owner.api_version == "batch/v1"

    @property
    def job(self) -> Uid | None:
        """Return the UID of the Job that controls the pod by its owner reference, or None."""
        return self.controller.uid if self.controller is not None and self.is_of_job else None

    @property
    def is_mirror(self) -> bool:
        """Whether the pod is the mirror of a static pod, which the kubelet runs already.

        Anyone may write the annotation. With a node name it is harmless: a kubelet runs no mirror pod that it did not
        create (`pkg/kubelet/kubelet.go`, HandlePodAdditions).
        """
        return bool(self.node) and MIRROR in self.annotations

    def settings(self, key: str) -> Mapping[str, str]:
        """Return the pod's values of one key: `label` or `annotation` → text. Empty texts are left out."""
        label, annotation = (self.labels or {}).get(key), self.annotations.get(key)
        if not label and not annotation:
            return {}
        return {where: text for where, text in (("label", label), ("annotation", annotation)) if text}


class ClaimHead(TypedDict, total=False):
    """The fields read of an entry of spec.resourceClaims."""

    name: str | None
    resourceClaimName: str | None
    resourceClaimTemplateName: str | None


class GateHead(TypedDict, total=False):
    """The fields read of an entry of spec.schedulingGates."""

    name: str | None


class OwnerHead(TypedDict, total=False):
    """The fields read of an entry of metadata.ownerReferences."""

    apiVersion: str | None
    kind: str | None
    name: str | None
    uid: str | None
    controller: bool | None


class MetaHead(TypedDict, total=False):
    """The fields read of metadata."""

    name: str | None
    generateName: str | None
    labels: dict[str, str] | None
    annotations: dict[str, str] | None
    ownerReferences: list[OwnerHead] | None


class ResourcesHead(TypedDict, total=False):
    """The fields read of a container's resources."""

    requests: dict[str, str | int | float] | None
    limits: dict[str, str | int | float] | None


class ContainerHead(TypedDict, total=False):
    """The fields read of a container."""

    restartPolicy: str | None
    resources: ResourcesHead | None


class SpecHead(TypedDict, total=False):
    """The fields read of spec."""

    nodeName: str | None
    schedulerName: str | None
    schedulingGates: list[GateHead] | None
    resourceClaims: list[ClaimHead] | None
    containers: list[ContainerHead] | None
    initContainers: list[ContainerHead] | None
    overhead: dict[str, str | int | float] | None
    resources: ResourcesHead | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A Job at admission: whether its pod template has metadata, and the template's annotations, None if it has none.

    labels: the Job's own, not those of its pods. pod_labels: of the template, None if it has none. has_template:
    whether there is one, as the API server demands.
    """

    has_meta: bool
    has_template: bool = True
    annotations: Mapping[str, str] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] | None = None


class TemplateHead(TypedDict, total=False):
    """The fields read of a pod template."""

    metadata: MetaHead | None


class JobSpecHead(TypedDict, total=False):
    """The fields read of a Job's spec."""

    template: TemplateHead | None


class JobHead(TypedDict):
    """The fields of a Job that `decode_job` reads."""

    metadata: MetaHead
    spec: JobSpecHead


class PodHead(TypedDict):
    """The fields of a pod that `decode` reads; the webhook parses no more of a pod than this."""

    metadata: MetaHead
    spec: SpecHead


_to_pod, _to_job = typed_json.converter(PodHead), typed_json.converter(JobHead)


def decode(obj: Json | None, namespace: str, work: WorkBudget | None = None) -> PodView:
    """Read a pod of that namespace (the request's; the object need not carry it).

    work: is charged; None offline. Raises MalformedObjectError or TooMuchWorkError.
    """
    try:
        head = _to_pod(obj)
    except msgspec.ValidationError as error:
        raise MalformedObjectError("Pod", meta.name_in(obj), (_problem(error),)) from error
    return read(head, namespace, work)


def read(head: PodHead, namespace: str, work: WorkBudget | None = None) -> PodView:
    """Read a pod whose fields have the right types. Raises MalformedObjectError for a wrong value."""
    labels, spec = head["metadata"].get("labels"), head["spec"]
    amounts, has_domain = _weigh_amounts(spec)
    if work is not None:
        _charge(work, head)
        if amounts > FEW:
            work.charge(Work.AMOUNT, amounts)
    return PodView(
        namespace=namespace,
        labels=labels,
        annotations=head["metadata"].get("annotations") or {},
        gates=_gates(spec.get("schedulingGates")),
        node=spec.get("nodeName") or "",
        scheduler=spec.get("schedulerName") or "",
        claims=tuple([_claim(claim) for claim in spec.get("resourceClaims") or ()]),
        containers=pods.decode_containers(Reader(spec)) if has_domain else (),
        controller=_controller(head["metadata"].get("ownerReferences") or ()),
        spec=spec,
    )


def _charge(work: WorkBudget, head: PodHead) -> None:
    """Charge the parts of a pod, if they are many. Raises TooMuchWorkError."""
    data, spec = head["metadata"], head["spec"]
    containers = len(spec.get("containers") or ()) + len(spec.get("initContainers") or ())
    claims, owners = len(spec.get("resourceClaims") or ()), len(data.get("ownerReferences") or ())
    pairs = len(data.get("labels") or ()) + len(data.get("annotations") or ())
    gates = len(spec.get("schedulingGates") or ())
    if containers + claims + owners + pairs + gates > FEW:
        work.charge(Work.CONTAINER, containers)
        work.charge(Work.POD_CLAIM, claims)
        work.charge(Work.VALUE, owners + pairs + gates)


def _weigh_amounts(spec: SpecHead) -> tuple[int, bool]:
    """Return how many amounts of resources there are, and whether a container requests a resource with a domain.

    An amount of many digits counts more. Devices may serve a resource with a domain in its name; few pods request any.
    """
    count, has_domain = 0, False
    for part in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()), spec):
        resources = part.get("resources")
        if not resources:
            continue
        for amounts in (resources.get("requests"), resources.get("limits")):
            if not amounts:
                continue
            for name, amount in amounts.items():
                count += 1 + (len(amount) // FEW if isinstance(amount, str) else 0)
                if "/" in name and part is not spec:
                    has_domain = True
    return count, has_domain


def decode_job(obj: Json | None) -> JobView:
    """Read a Job. Raises MalformedObjectError."""
    try:
        job = _to_job(obj)
    except msgspec.ValidationError as error:
        raise MalformedObjectError("Job", meta.name_in(obj), (_problem(error),)) from error
    template = job["spec"].get("template")
    template_meta = (template or {}).get("metadata")
    return JobView(
        has_template=template is not None,
        has_meta=template_meta is not None,
        annotations=template_meta.get("annotations") if template_meta else None,
        labels=job["metadata"].get("labels") or {},
        pod_labels=template_meta.get("labels") if template_meta else None,
    )


def _gates(heads: list[GateHead] | None) -> tuple[str, ...] | None:
    return None if heads is None else tuple([gate.get("name") or "" for gate in heads])


def _controller(owners: Iterable[OwnerHead]) -> Owner | None:
    for owner in owners:
        if owner.get("controller"):
            return Owner(
                api_version=owner.get("apiVersion") or "",
                kind=owner.get("kind") or "",
                name=owner.get("name") or "",
                uid=Uid(owner.get("uid") or ""),
                controller=True,
            )
    return None


def _claim(head: ClaimHead) -> PodClaim:
    return PodClaim(
        name=head.get("name") or "",
        claim=head.get("resourceClaimName"),
        template=head.get("resourceClaimTemplateName"),
    )


def _problem(error: msgspec.ValidationError) -> Problem:
    """Turn `Expected X, got Y - at `$.spec.nodeName`` into the form of our other problems."""
    message, _, path = str(error).partition(" - at `$.")
    return Problem(path.rstrip("`") or ".", message)
