"""The plan of a gang that waits for nodes, as lines: each node to come, with the pods that would go there."""

from collections.abc import Mapping, Sequence

from admission.api.values.names import NodeName
from admission.dra.requests.gang_request import Plan

MOST_NODES = 16
"""The most nodes that are listed."""

MOST_PODS = 8
"""The most pods that are named of one node."""


def lines(plan: Plan, to_come: Mapping[NodeName, NodeName]) -> list[str]:
    """Return `node: pods` for each node of a plan: those to come first, in their order, then the others by name.

    to_come: what stands for each node that has to come, by its name in the plan.
    """
    pods: dict[NodeName, list[str]] = {name: [] for name in to_come.values()}
    for pod in plan.pods:
        pods.setdefault(to_come.get(pod.node, pod.node), []).append(pod.pod.rpartition("/")[2])
    used = [*(name for name in to_come.values() if pods[name]), *sorted(pods.keys() - {*to_come.values()})]
    found = [f"{name}: {_named(pods[name])}" for name in used[:MOST_NODES]]
    rest = used[MOST_NODES:]
    if rest:
        found.append(f"{len(rest)} more nodes: {sum(len(pods[name]) for name in rest)} pods")
    return found


def _named(pods: Sequence[str]) -> str:
    more = f" and {len(pods) - MOST_PODS} more" if len(pods) > MOST_PODS else ""
    return f"{', '.join(pods[:MOST_PODS])}{more}"
