"""The pods of Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers.

A Deployment's pods are those of the ReplicaSet that it makes. A StatefulSet's are all of them, though it makes one when
the one before it runs; each has a volume claim of each claim template. A DaemonSet has a pod on every node that its pod
may go to (`pkg/controller/daemon/daemon_controller.go`, NodeShouldRunDaemonPod, and `util/daemonset_util.go`, v1.37.1).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from admission.api.kubernetes import meta
from admission.api.kubernetes.jobs import PodTemplate
from admission.api.kubernetes.meta import Meta, Owner
from admission.api.kubernetes.nodes import Node
from admission.api.scheduling import scheduling_rules
from admission.api.storage import claim_templates
from admission.api.values import selectors
from admission.api.values.decoding import Json, Reader
from admission.api.values.selectors import Toleration
from admission.simulation import in_memory
from admission.workloads.name_conflicts import HASH

DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET = "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"
GROUPS = {
    **dict.fromkeys((DEPLOYMENT, REPLICA_SET, STATEFUL_SET, DAEMON_SET), "apps"),
    "ReplicationController": "",
}
"""The API group of each kind; all in `v1`."""

_HASH_LENGTH = 10
_NODE_PROBLEMS = {
    **dict.fromkeys(("not-ready", "unreachable"), "NoExecute"),
    **dict.fromkeys(("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"), "NoSchedule"),
}
"""Taints of nodes that every pod of a DaemonSet tolerates, with their effects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicated:
    """A workload. replicas: how many pods, 0 for a DaemonSet; start: the number of a StatefulSet's first one.

    template: of the pods, as JSON. claim_templates: of a StatefulSet.
    """

    kind: str
    meta: Meta
    replicas: int
    template: Json
    start: int = 0
    claim_templates: tuple[Json, ...] = ()

    @property
    def owner(self) -> Owner:
        """Return the owner of its pods: itself, or the ReplicaSet that a Deployment makes."""
        version = f"{GROUPS[self.kind]}/v1".removeprefix("/")
        if self.kind != DEPLOYMENT:
            return Owner(api_version=version, kind=self.kind, name=self.meta.name, uid=self.meta.uid, controller=True)
        uid = in_memory.uid_of(REPLICA_SET, self.meta.uid)
        name = f"{self.meta.name}-{uid[:_HASH_LENGTH]}"
        return Owner(api_version=version, kind=REPLICA_SET, name=name, uid=uid, controller=True)


def decode(obj: Json) -> Replicated:
    """Decode a workload. Raises MalformedObjectError."""
    reader, kind = Reader(obj), str(obj["kind"])
    spec = reader.child("spec")
    found = Replicated(
        kind=kind,
        meta=meta.decode(reader),
        replicas=0 if kind == DAEMON_SET else spec.integer("replicas", 1),
        template=spec.object("template"),
        start=spec.child("ordinals").integer("start"),
        claim_templates=claim_templates.listed(spec),
    )
    reader.finish(kind, found.meta.key)
    return found


def deployment_of(pod: Json) -> str | None:
    """Return the key of the Deployment whose ReplicaSet owns a pod, as the ReplicaSet's name says; None without one."""
    data = Reader(pod).child("metadata")
    suffix = f"-{data.pairs('labels').get(HASH, '')}"
    owners = (one.text("name") for one in data.children("ownerReferences") if one.text("kind") == REPLICA_SET)
    names = (name.removesuffix(suffix) for name in owners if name.endswith(suffix) and len(suffix) > 1)
    name = next(names, None)
    return None if name is None else f"{data.text('namespace')}/{name}"


def templates(workload: Replicated, nodes: Iterable[Node]) -> Iterator[PodTemplate]:
    """Yield the templates of a workload's pods: one for each pod of a StatefulSet and for each node of a DaemonSet."""
    whole = PodTemplate(
        path=("spec", "template"), body=workload.template, pods=workload.replicas, name=workload.meta.name
    )
    match workload.kind:
        case "DaemonSet":
            yield from (_on_node(whole, node) for node in nodes if _may_run(workload.template, node))
        case "StatefulSet":
            yield from (_numbered(whole, workload, workload.start + number) for number in range(workload.replicas))
        case "Deployment":
            yield replace(whole, labels={HASH: workload.owner.uid[:_HASH_LENGTH]})
        case _:
            yield whole


def volume_claims(workload: Replicated) -> Iterator[Json]:
    """Yield the PersistentVolumeClaims that a StatefulSet makes."""
    for number in range(workload.start, workload.start + workload.replicas):
        for template in workload.claim_templates:
            name = f"{claim_templates.name(template)}-{workload.meta.name}-{number}"
            yield claim_templates.claim(name, template, workload.meta.namespace)


def _numbered(whole: PodTemplate, workload: Replicated, number: int) -> PodTemplate:
    """Return the template of one pod of a StatefulSet, with its volumes, which replace those of the same names."""
    names = map(claim_templates.name, workload.claim_templates)
    body = claim_templates.with_own(whole.body, {name: f"{name}-{whole.name}-{number}" for name in names})
    labels = {
        "apps.kubernetes.io/pod-index": str(number),
        "statefulset.kubernetes.io/pod-name": f"{whole.name}-{number}",
    }
    return replace(whole, body=body, pods=1, start=number, labels=labels)


# DaemonSets.


def _may_run(template: Json, node: Node) -> bool:
    """Return whether a DaemonSet makes a pod for a node."""
    spec = Reader(template).child("spec")
    affinity = spec.child("affinity").child("nodeAffinity")
    required = selectors.decode_nodes(affinity.child(scheduling_rules.REQUIRED))
    tolerations = (*map(selectors.decode_toleration, spec.children("tolerations")), *_tolerations(spec))
    return (
        all(node.meta.labels.get(key) == value for key, value in spec.pairs("nodeSelector").items())
        and (scheduling_rules.REQUIRED not in affinity or required.matches(node.name, node.meta.labels))
        and selectors.first_untolerated(node.taints, tolerations) is None
    )


def _tolerations(spec: Reader) -> Iterator[Toleration]:
    """Yield the tolerations that every pod of a DaemonSet gets."""
    more = {"network-unavailable": "NoSchedule"} if spec.flag("hostNetwork") else {}
    for name, effect in (_NODE_PROBLEMS | more).items():
        yield Toleration(key=f"node.kubernetes.io/{name}", operator="Exists", effect=effect)


def _on_node(whole: PodTemplate, node: Node) -> PodTemplate:
    """Return the template of the pod for one node, which it asks for by name."""
    spec = Reader(whole.body).object("spec")
    name = {"key": "metadata.name", "operator": "In", "values": [node.name]}
    required = {"nodeSelectorTerms": [{"matchFields": [name]}]}
    affinity: dict[str, Any] = dict(Reader(spec).object("affinity"))
    affinity["nodeAffinity"] = {**Reader(affinity).object("nodeAffinity"), scheduling_rules.REQUIRED: required}
    added = [{"key": one.key, "operator": one.operator, "effect": one.effect} for one in _tolerations(Reader(spec))]
    tolerations = [*Reader(spec).objects("tolerations"), *added]
    body = {**whole.body, "spec": {**spec, "affinity": affinity, "tolerations": tolerations}}
    return replace(whole, body=body, pods=1, name=f"{whole.name}-{node.name}")
