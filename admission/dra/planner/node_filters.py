"""The node filters of kube-scheduler, devices aside: which nodes a pod may go to.

Simulated: NodeUnschedulable, TaintToleration, NodeAffinity (node selector and required affinity), NodeDeclaredFeatures,
NodeResourcesFit, and the node selectors of claims that are allocated already. What looks at other pods, and at volumes,
is in `admission.filters`. Beyond kube-scheduler, a node that is being taken away is refused to all pods, whatever they
tolerate, and one that came for a gang to those of others.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.values.names import NodeName
from admission.api.values.selectors import Taint, first_untolerated
from admission.dra.requests import extended_resources
from admission.dra.requests.gang_request import PodDemand
from admission.dra.state.cluster_state import ClusterState, key_of

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint that a pod must tolerate to go to a cordoned node."""

MOST_PASSING = 64
"""The most answers of `passed` that a cluster state keeps; the oldest is dropped."""


class Filter(StrEnum):
    """What keeps a pod off a node, in the order in which it is checked."""

    LEAVING = "leaving"
    RESERVED = "reserved"
    UNSCHEDULABLE = "unschedulable"
    TAINT = "taint"
    NODE_SELECTOR = "node selector"
    AFFINITY = "affinity"
    FEATURES = "declared features"
    CLAIM = "claim"
    PLUGIN = "device plugin"
    KIND = "kind of devices"


class Refused(NamedTuple):
    """Why a node is refused: the filter and its reason."""

    filter: Filter
    why: str


def refuses(demand: PodDemand, node: Node, cluster: ClusterState) -> Refused | None:
    """Return the first filter that keeps the pod off the node, whatever is free there; None if all pass."""
    return (
        _refuses_pod(demand.pod, node)
        or _refuses_claims(demand, node, cluster)
        or _refuses_extended(demand, node)
        or _refuses_kind(demand, node)
    )


def passed(demand: PodDemand, cluster: ClusterState) -> frozenset[NodeName]:
    """Return the nodes that pass all filters of a pod, whatever is free there."""
    pod, nodes = demand.pod, cluster.nodes.items()
    bound = any(claim.allocation is not None or key_of(claim) in cluster.pinned for claim in demand.claims)
    if bound or demand.extended:
        return frozenset(name for name, node in nodes if refuses(demand, node, cluster) is None)
    key = (tuple(sorted(pod.node_selector.items())), pod.affinity, pod.tolerations, pod.features)
    if key not in cluster.passing:
        if len(cluster.passing) >= MOST_PASSING:
            del cluster.passing[next(iter(cluster.passing))]
        cluster.passing[key] = frozenset(name for name, node in nodes if _refuses_pod(pod, node) is None)
    return cluster.passing[key] if demand.kept_to is None else cluster.passing[key] & demand.kept_to


def matches(pod: Pod, node: Node) -> bool:
    """Return whether a node is one of those to which a pod itself is kept, whatever is there."""
    return _does_not_match(pod, node) is None


def _refuses_pod(pod: Pod, node: Node) -> Refused | None:
    return _is_closed(pod, node) or _does_not_match(pod, node)


def _is_closed(pod: Pod, node: Node) -> Refused | None:
    if node.leaving:
        return Refused(Filter.LEAVING, node.leaving)
    if node.reserved:
        return Refused(Filter.RESERVED, "came for a gang whose pods are not all bound yet")
    if node.unschedulable and first_untolerated((UNSCHEDULABLE,), pod.tolerations) is not None:
        return Refused(Filter.UNSCHEDULABLE, "is unschedulable")
    if node.taints and (taint := first_untolerated(node.taints, pod.tolerations)) is not None:
        return Refused(Filter.TAINT, f"has taint {taint.text}")
    return None


def _does_not_match(pod: Pod, node: Node) -> Refused | None:
    labels = node.meta.labels
    for key, value in pod.node_selector.items():
        if labels.get(key) != value:
            return Refused(Filter.NODE_SELECTOR, f"does not have label {key}={value}")
    if pod.affinity is not None and not pod.affinity.matches(node.name, labels):
        return Refused(Filter.AFFINITY, "does not match the pod's required node affinity")
    for feature in pod.features:
        if feature not in node.features:
            return Refused(Filter.FEATURES, f"does not declare feature {feature}")
    return None


def _refuses_claims(demand: PodDemand, node: Node, cluster: ClusterState) -> Refused | None:
    for claim in demand.claims:
        allocation = claim.allocation
        if allocation is not None:
            selector = allocation.node_selector
            if selector is not None and not selector.matches(node.name, node.meta.labels):
                return Refused(Filter.CLAIM, f"cannot use claim {claim.meta.name}, which is allocated elsewhere")
        elif node.name not in cluster.pinned.get(key_of(claim), (node.name,)):
            return Refused(Filter.CLAIM, f"cannot use claim {claim.meta.name}, which is planned elsewhere")
    return None


def _refuses_extended(demand: PodDemand, node: Node) -> Refused | None:
    """Refuse a node where a device plugin would serve an extended resource and DRA should, or the reverse."""
    plugged = extended_resources.plugged(node, demand.extended)
    for resource in demand.extended:
        if resource in plugged and resource not in demand.plugged:
            why = f"has a device plugin for {resource}, which a gang gets from plugins alone or from devices alone"
            return Refused(Filter.PLUGIN, why)
        if resource in demand.plugged and resource not in plugged:
            return Refused(Filter.PLUGIN, f"has no device plugin for {resource}")
    if _has_plugins_alone(demand) and any(claim.allocation is None for claim in demand.claims):
        return Refused(Filter.PLUGIN, "cannot bind a pod with claims beside resources of a device plugin")
    return None


def _has_plugins_alone(demand: PodDemand) -> bool:
    return bool(demand.plugged) and not demand.by_devices


def _refuses_kind(demand: PodDemand, node: Node) -> Refused | None:
    if demand.kept_to is None or _has_plugins_alone(demand) or node.name in demand.kept_to:
        return None
    return Refused(Filter.KIND, "has devices of another kind as well, which kube-scheduler might give it")


def wants(demand: PodDemand) -> dict[str, int]:
    """Return the resources that a node must have left for the pod, without those that DRA devices serve."""
    requests = demand.pod.requests
    return {name: amount for name, amount in requests.items() if amount > 0 and name not in demand.by_devices}


def lacking(wants: Mapping[str, int], left: Mapping[str, int] | None) -> str | None:
    """Return the first resource of which too little is left; None if all fit.

    A node without `allocatable` limits nothing. A resource that allocatable does not name is 0, as in kube-scheduler;
    only `pods`, which every real node names, is then without limit.
    """
    if left is None:
        return None
    for resource, amount in sorted(wants.items()):
        if amount > 0 and amount > left.get(resource, amount if resource == "pods" else 0):
            return resource
    return None
