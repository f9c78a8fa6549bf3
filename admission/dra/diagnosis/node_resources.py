"""Which resource of nodes a pod lacks: one that none of them has enough of, or one on each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from admission.api.values import quantities
from admission.api.values.names import NodeName
from admission.api.values.reasons import Detail
from admission.dra.planner import node_filters
from admission.dra.requests.node_resources import Lacking
from admission.dra.state.cluster_state import ClusterState

MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """What a pod needs and the nodes have not, to follow its name, with the numbers."""

    text: str
    details: Mapping[str, Detail]


def shortage(
    wants: Mapping[str, int], left: Sequence[tuple[NodeName, Mapping[str, int]]], cluster: ClusterState
) -> Shortage:
    """Return what is missing. left: where the pod may go, each with what is left there; all lack something."""
    for resource, needed in sorted(wants.items()):
        most, best = max(((have.get(resource, 0), -at) for at, (_, have) in enumerate(left)))
        node = left[-best][0]
        if node_filters.lacking({resource: needed}, {resource: most}) is not None:
            return Shortage(
                text=f"needs {amount(resource, needed)} {resource}; the most that is left on a node where it may go is"
                f" {amount(resource, most)} ({node}){_nowhere(resource, cluster)}",
                details={"resource": resource, "needed": needed, "left": most, "node": node},
            )
    return _each_lacks_another(wants, left)


def shortage_with_devices(lacking: Mapping[NodeName, Lacking]) -> Shortage:
    """Return what is missing for a pod with the devices that it would get. lacking: by node, what that is."""
    node, best = max(sorted(lacking.items()), key=lambda pair: pair[1].left - pair[1].needed)
    needed, left = amount(best.resource, best.needed), amount(best.resource, best.left)
    return Shortage(
        text=f"needs {needed} {best.resource} of a node with the devices that it gets there, which take some of it;"
        f" {node} has {left} left",
        details={"resource": best.resource, "needed": best.needed, "left": best.left, "node": node},
    )


def _each_lacks_another(wants: Mapping[str, int], left: Sequence[tuple[NodeName, Mapping[str, int]]]) -> Shortage:
    """Explain that each resource is there, but on no node all of them."""
    lacking: dict[str, list[NodeName]] = {}
    for node, have in left:
        lacking.setdefault(node_filters.lacking(wants, have) or "", []).append(node)
    parts = []
    for resource, nodes in sorted(lacking.items()):
        more = f" and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else ""
        verb = "has" if len(nodes) == 1 else "have"
        parts.append(f"{', '.join(nodes[:MOST_NAMED])}{more} {verb} too little {resource}")
    needed = ", ".join(f"{amount(name, wants[name])} {name}" for name in sorted(lacking))
    return Shortage(
        text=f"needs {needed} on one node, and no node where it may go has all of it left: {'; '.join(parts)}",
        details={"resources": sorted(lacking), "nodes": len(left)},
    )


def _nowhere(resource: str, cluster: ClusterState) -> str:
    """Say of an extended resource that no node offers it; empty if one does, used up or not."""
    if "/" not in resource or any((node.allocatable or {}).get(resource) for node in cluster.nodes.values()):
        return ""
    return ": no node has it in status.allocatable, and no DeviceClass has it as extendedResourceName"


def amount(resource: str, value: int) -> str:
    """Return an amount as people write it: cores in thousandths, all else with a binary suffix where it is whole."""
    return f"{value}m" if resource == "cpu" else quantities.render(value)
