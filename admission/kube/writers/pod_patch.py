"""The change of a pod's spec that opens Muster's gate and pins it to a node: pure, sent by `pods`."""

from typing import Any

from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from admission.api.values.names import NodeName
from admission.api.values.selectors import NodeSelector, NodeTerm, Requirement

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def opened(pod: Pod, node: NodeName | None) -> dict[str, Any]:
    """Return the strategic merge patch. The gates of others stay, and so does every affinity the author wrote.

    UID and version make the API server refuse the patch for another pod of the same name, and for one that has changed
    since it was seen: a later leader may have taken its place back.
    """
    spec: dict[str, Any] = {"schedulingGates": [{"$patch": "delete", "name": names.GATE}]}
    if node is not None:
        terms = [_term(term) for term in pinned(pod.affinity, node).terms]
        spec["affinity"] = {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
    return {"metadata": {"uid": pod.meta.uid, "resourceVersion": pod.meta.resource_version}, "spec": spec}


def pinned(affinity: NodeSelector | None, node: NodeName) -> NodeSelector:
    """Return an affinity for this node that also demands all that the pod's own does.

    While a pod is gated, its terms may gain requirements at their end and nothing else (pod validation of Kubernetes,
    pkg/apis/core/validation, v1.37). kube-scheduler then looks at this one node only, as every term names it. A term
    without requirements matches nothing; it would match if it gained one, so it is left alone.
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
