"""What a filter answers: the rule that keeps a pod off a node, the label that it is about, and why, for people."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from admission.api.kubernetes.nodes import Node
from admission.api.values.names import NodeName

Nodes = Mapping[NodeName, Node]


class Rule(StrEnum):
    """What keeps a pod off a node because of other pods, by the field of a pod's spec."""

    POD_AFFINITY = "podAffinity"
    POD_ANTI_AFFINITY = "podAntiAffinity"
    ANTI_AFFINITY_OF_OTHERS = "podAntiAffinity of other pods"
    SPREAD = "topologySpreadConstraints"
    SPREAD_LABEL = "topologySpreadConstraints for a label"
    PORTS = "hostPort"


class Refusal(NamedTuple):
    """Why a pod may not go to a node. key: the node label of the rule; empty for host ports."""

    rule: Rule
    key: str
    why: str

    @property
    def title(self) -> str:
        """Return the rule in words, without the node."""
        return f"{self.rule.value} on {self.key}" if self.key else self.rule.value
