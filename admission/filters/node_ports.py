"""NodePorts: two pods with one host port cannot be on one node (`pkg/scheduler/framework/plugins/nodeports`, v1.37)."""

from collections import Counter
from typing import Self

from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.scheduling.scheduling_rules import HostPort
from admission.api.values.names import NodeName
from admission.filters.placed_pods import PlacedPods
from admission.filters.refusal import Nodes, Refusal, Rule


class NodePorts:
    """The filter's state for one pod."""

    __slots__ = ("_taken", "ports")

    def __init__(self, pod: Pod, placed: PlacedPods, nodes: Nodes) -> None:  # noqa: ARG002 - as the other filters
        self.ports = pod.rules.ports
        self._taken: Counter[NodeName] = Counter()
        for node in placed.with_ports if self.ports else ():
            if conflict(self.ports, placed.ports(node)) is not None:
                self._taken[node] += 1

    def __bool__(self) -> bool:
        """Return whether the filter may refuse any node."""
        return bool(self.ports)

    def copy(self) -> Self:
        found = object.__new__(type(self))
        found.ports, found._taken = self.ports, Counter(self._taken)
        return found

    def effect(self, other: Pod) -> bool:
        """Return whether another pod of the gang cannot be on the same node."""
        return conflict(self.ports, other.rules.ports) is not None

    def add(self, effect: bool, node: Node, times: int) -> None:  # noqa: FBT001 - the effect of the other pod
        """Count a pod with this effect on a node; times: -1 to forget it."""
        if effect:
            self._taken[node.name] += times

    def refuses(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node now."""
        if self._taken.get(node.name, 0) <= 0:
            return None
        numbers = ", ".join(f"{port.protocol} {port.port}" for port in self.ports)
        return Refusal(Rule.PORTS, "", text=f"a host port that it needs is taken there ({numbers})")

    bars = refuses

    def view(self, node: Node) -> None:  # noqa: ARG002 - as the other filters
        """Return what tells nodes apart beside those that are barred: nothing."""
        return


def conflict(ports: tuple[HostPort, ...], others: "list[HostPort] | tuple[HostPort, ...]") -> HostPort | None:
    """Return the first port that one of the others takes."""
    return next((port for port in ports if any(port.conflicts(other) for other in others)), None)
