"""Muster's own answer about a world: the plugins that refuse each node, for every pod of the gang in its turn.

Pods that are placed are where kube-scheduler's answer has them, so that one difference does not bring others with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from admission.api.kubernetes import nodes, pods
from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot
from admission.api.values.names import NodeName
from admission.api.values.selectors import Toleration
from admission.dra.planner import node_filters
from admission.dra.planner.node_filters import Filter
from admission.dra.requests.gang_request import PodDemand
from admission.dra.state import cluster_state, incremental

Json = dict[str, Any]
Refusals = Mapping[str, frozenset[str]]
"""By node, the plugins that refuse it; only nodes that one refuses."""

OF_FILTERS: Mapping[Filter, str] = {
    Filter.UNSCHEDULABLE: "NodeUnschedulable",
    Filter.TAINT: "TaintToleration",
    Filter.NODE_SELECTOR: "NodeAffinity",
    Filter.AFFINITY: "NodeAffinity",
}

JUDGED = frozenset({*OF_FILTERS.values(), "NodeResourcesFit"})
"""The plugins that Muster simulates."""


def refusals(world: Json, placed: Sequence[str]) -> Iterator[Refusals]:
    """Yield, for each pod of the gang in order, the nodes that are refused. placed: their nodes, or empty text."""
    known = [nodes.decode(_identified(node)) for node in world["nodes"]]
    running = [pods.decode(_identified(pod)) for pod in world["pods"]]
    cluster = cluster_state.build(
        Snapshot(nodes={node.name: node for node in known}, pods={pod.meta.uid: pod for pod in running}), ()
    )
    left = dict(cluster.left)
    for member, node in zip(world["gang"], placed, strict=True):
        pod = pods.decode(_identified(member["pod"]))
        found = {one.name: _of_node(pod, one, cluster, left.get(one.name)) for one in known}
        yield {name: plugins for name, plugins in found.items() if plugins}
        if node:
            left[NodeName(node)] = incremental.less(left[NodeName(node)], pod.requests)


def _of_node(
    pod: Pod, node: Node, cluster: cluster_state.ClusterState, left: Mapping[str, int] | None
) -> frozenset[str]:
    found = {OF_FILTERS[refused.filter] for one in _apart(pod) if (refused := _refuses(one, node, cluster)) is not None}
    if node_filters.lacking(node_filters.wants(PodDemand(pod=pod, claims=())), left) is not None:
        found.add("NodeResourcesFit")
    return frozenset(found)


def _refuses(pod: Pod, node: Node, cluster: cluster_state.ClusterState) -> node_filters.Refused | None:
    return node_filters.refuses(PodDemand(pod=pod, claims=()), node, cluster)


def _apart(pod: Pod) -> tuple[Pod, Pod]:
    """Return the pod with its rules about taints only, and with its others: the first filter that refuses is told."""
    return replace(pod, node_selector={}, affinity=None), replace(pod, tolerations=(Toleration(operator="Exists"),))


def _identified(obj: Json) -> Json:
    """Return a manifest with the UID that the API server gives, in the words of the program's README."""
    meta = obj["metadata"]
    name = "/".join(meta[key] for key in ("namespace", "name") if key in meta)
    return {**obj, "metadata": {"uid": name, **meta}}
