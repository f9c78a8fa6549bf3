"""The patch of a pod's spec that removes Muster's scheduling gate and keeps the pod to nodes: pure, sent by `pods`."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from admission.api.values.names import NodeName
from admission.api.values.selectors import NodeSelector, NodeTerm, Requirement
from admission.ports import NO_ANNOTATIONS

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class Where(NamedTuple):
    """One requirement of the nodes where a pod may go. is_field: of a field of the node, not of a label."""

    requirement: Requirement
    is_field: bool = False


def on_node(node: NodeName) -> Where:
    """Return the requirement that only one node meets."""
    return Where(Requirement(key="metadata.name", operator="In", values=(node,)), is_field=True)


def with_labels(labels: Mapping[str, str]) -> tuple[Where, ...]:
    """Return the requirements that only nodes with these labels meet."""
    return tuple(Where(Requirement(key=key, operator="In", values=(labels[key],))) for key in sorted(labels))


def opened(pod: Pod, where: Sequence[Where], annotations: Mapping[str, str] = NO_ANNOTATIONS) -> dict[str, Any]:
    """Return the strategic merge patch. Other gates stay, and so does every affinity in the pod's spec.

    With UID and version, the API server refuses the patch for another pod of the same name, and for a pod that has
    changed since it was seen: a later leader may have withdrawn its placement.
    """
    spec: dict[str, Any] = {"schedulingGates": [{"$patch": "delete", "name": names.GATE}]}
    if where:
        terms = [_term(term) for term in kept_to(pod.affinity, where).terms]
        spec["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
    metadata: dict[str, Any] = {"uid": pod.meta.uid, "resourceVersion": pod.meta.resource_version}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"metadata": metadata, "spec": spec}


def kept_to(affinity: NodeSelector | None, where: Sequence[Where]) -> NodeSelector:
    """Return an affinity with these requirements that keeps all of the pod's own.

    While a pod is gated, Kubernetes only allows requirements to be appended to its terms (pod validation,
    pkg/apis/core/validation, v1.37). Pinned to a node, kube-scheduler considers this node only, as every term names it.
    A term without requirements matches no node; it would match if it gained one, so it is left unchanged.
    """
    if affinity is None or not affinity.terms:
        return NodeSelector(terms=(_with(NodeTerm(), where),))
    empty = NodeTerm()
    return NodeSelector(terms=tuple(term if term == empty else _with(term, where) for term in affinity.terms))


def _with(term: NodeTerm, where: Sequence[Where]) -> NodeTerm:
    """Return a term with the requirements that it lacks."""
    expressions = [one.requirement for one in where if not one.is_field and one.requirement not in term.expressions]
    fields = [one.requirement for one in where if one.is_field and one.requirement not in term.fields]
    return NodeTerm(expressions=(*term.expressions, *expressions), fields=(*term.fields, *fields))


def _term(term: NodeTerm) -> dict[str, Any]:
    lists = {"matchExpressions": term.expressions, "matchFields": term.fields}
    return {name: [_requirement(item) for item in items] for name, items in lists.items() if items}


def _requirement(requirement: Requirement) -> dict[str, Any]:
    values = {"values": list(requirement.values)} if requirement.values else {}
    return {"key": requirement.key, "operator": requirement.operator, **values}
