"""The patch of a pod's spec that removes Muster's scheduling gate and pins the pod to a node: pure, sent by `pods`."""

from typing import Any

from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from admission.api.values.names import NodeName
from admission.api.values.selectors import NodeSelector, NodeTerm, Requirement

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def opened(pod: Pod, node: NodeName | None) -> dict[str, Any]:
    """Return the strategic merge patch. Other gates stay, and so does every affinity in the pod's spec.

    With UID and version, the API server refuses the patch for another pod of the same name, and for a pod that has
    changed since it was seen: a later leader may have withdrawn its placement.
    """
    spec: dict[str, Any] = {"schedulingGates": [{"$patch": "delete", "name": names.GATE}]}
    if node is not None:
        terms = [_term(term) for term in pinned(pod.affinity, node).terms]
        spec["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
    return {"metadata": {"uid": pod.meta.uid, "resourceVersion": pod.meta.resource_version}, "spec": spec}


def pinned(affinity: NodeSelector | None, node: NodeName) -> NodeSelector:
    """Return an affinity to this node that keeps all requirements of the pod's own.

    While a pod is gated, Kubernetes only allows requirements to be appended to its terms (pod validation,
    pkg/apis/core/validation, v1.37). kube-scheduler then considers this node only, as every term names it. A term
    without requirements matches no node; it would match if it gained one, so it is left unchanged.
    """
    here = Requirement(key="metadata.name", operator="In", values=(node,))
    if affinity is None or not affinity.terms:
        return NodeSelector(terms=(NodeTerm(fields=(here,)),))
    return NodeSelector(terms=tuple(_with(term, here) for term in affinity.terms))


def _with(term: NodeTerm, here: Requirement) -> NodeTerm:
    if here in term.fields or not (term.expressions or term.fields):
        return term
    return NodeTerm(expressions=term.expressions, fields=(*term.fields, here))


def _term(term: NodeTerm) -> dict[str, Any]:
    lists = {"matchExpressions": term.expressions, "matchFields": term.fields}
    return {name: [_requirement(item) for item in items] for name, items in lists.items() if items}


def _requirement(requirement: Requirement) -> dict[str, Any]:
    values = {"values": list(requirement.values)} if requirement.values else {}
    return {"key": requirement.key, "operator": requirement.operator, **values}
