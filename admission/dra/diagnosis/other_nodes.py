"""Nodes that would do if the pod might go there: what is in the way is then not that they have too little."""

from collections.abc import Callable
from itertools import islice

from admission.api.values.names import NodeName
from admission.dra.diagnosis import rule_refusals
from admission.dra.equivalence.device_signature import DeviceSignatures
from admission.dra.planner import node_filters
from admission.dra.planner.pod_groups import PodKind
from admission.dra.requests.requests import ParsedRequest
from admission.dra.state.cluster_state import ClusterState

MOST_LOOKED_AT = 64
"""How many of the nodes where the pod may not go are looked at."""


def text(kind: PodKind, cluster: ClusterState, has_enough: Callable[[NodeName], bool]) -> str:
    """Return which nodes have enough and are left out for one reason, the first by name; empty if none is found.

    has_enough: whether a node has what the others lack, in use or not.
    """
    demand = kind.members[0]
    others = (name for name in sorted(cluster.nodes) if name not in kind.nodes)
    found: dict[str, list[str]] = {}
    for name in islice(others, MOST_LOOKED_AT):
        refused = node_filters.refuses(demand, cluster.nodes[name], cluster)
        if refused is not None and has_enough(name):
            found.setdefault(refused.why, []).append(name)
    if not found:
        return ""
    why, names = next(iter(found.items()))
    named = rule_refusals.names_text(names)
    return (
        f"; {named} {'has' if len(names) == 1 else 'have'} enough in all, but {'' if len(names) == 1 else 'each '}{why}"
    )


def with_devices(
    kind: PodKind, cluster: ClusterState, signatures: DeviceSignatures, parsed: ParsedRequest, needed: int
) -> str:
    """Return which nodes have enough devices, or of an extended resource by a plugin, and are left out, and why."""
    demand, inventories = kind.members[0], cluster.node_inventories

    def has_enough(name: NodeName) -> bool:
        allocatable = cluster.nodes[name].allocatable or {}
        if any(allocatable.get(one, 0) >= demand.pod.requests.get(one, 0) > 0 for one in demand.extended):
            return True
        return name in inventories and len(signatures.selected(parsed.texts, inventories[name])) >= needed

    return text(kind, cluster, has_enough)
