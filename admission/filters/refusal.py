"""What a filter answers: the rule that keeps a pod off a node, the label that it is about, and why, for people."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from admission.api.kubernetes.nodes import Node
from admission.api.values.names import NodeName

Nodes = Mapping[NodeName, Node]


class Rule(StrEnum):
    """What keeps a pod off a node because of other pods or of its volumes, by the field of a pod's spec."""

    POD_AFFINITY = "podAffinity"
    POD_ANTI_AFFINITY = "podAntiAffinity"
    ANTI_AFFINITY_OF_OTHERS = "podAntiAffinity of other pods"
    SPREAD = "topologySpreadConstraints"
    SPREAD_LABEL = "topologySpreadConstraints for a label"
    SPREAD_DOMAINS = "minDomains of topologySpreadConstraints"
    PORTS = "hostPort"
    CLAIM = "persistent volume claim"
    VOLUME = "node affinity of the volume of persistent volume claim"
    VOLUME_ZONE = "zone of the volume of persistent volume claim"
    SELECTED = "node selected for persistent volume claim"
    NO_VOLUME = "lack of a volume for persistent volume claim"
    TOPOLOGIES = "allowed topologies of the class of persistent volume claim"
    SPACE = "lack of storage for persistent volume claim"
    DISK = "other use of disk"
    SOLE = "other use of persistent volume claim"
    LIMIT = "volume limit of CSI driver"
    DRIVER = "lack of CSI driver"
    TURN = "turn of pods of higher priority for volumes"


ABOUT_LABELS = frozenset(
    {
        Rule.POD_AFFINITY,
        Rule.POD_ANTI_AFFINITY,
        Rule.ANTI_AFFINITY_OF_OTHERS,
        Rule.SPREAD,
        Rule.SPREAD_LABEL,
        Rule.SPREAD_DOMAINS,
    }
)
"""The rules whose key is a label of nodes."""


class Refusal(NamedTuple):
    """Why a pod may not go to a node.

    key: the node label of the rule, or the name of the claim, disk or driver that it is about; empty for host ports.
    value: of the node.
    text: the reason, where it has more than these. Reasons are put into words only where they are read: a search meets
    very many.
    annotation: by which the user asked for the rule, where a controller wrote it into the pod; else empty.
    """

    rule: Rule
    key: str
    value: str | None = None
    text: str = ""
    annotation: str = ""

    @property
    def title(self) -> str:
        """Return the rule in words, without the node."""
        if self.rule is Rule.CLAIM:
            # It is so on every node, so the reason has to be read whatever their number.
            return f"{self.rule.value} {self.key} (it {self.text})"
        title = f"{self._named}{' on' * (self.rule in ABOUT_LABELS)} {self.key}".rstrip()
        return f"{title} ({self.text})" if self.rule is Rule.SPREAD_DOMAINS else title

    @property
    def _named(self) -> str:
        """Return the field of the rule, or the annotation for which a controller wrote it."""
        if not self.annotation:
            return self.rule.value
        return f"annotation {self.annotation}{' of others' * (self.rule is Rule.ANTI_AFFINITY_OF_OTHERS)}"

    @property
    def why(self) -> str:
        """Return the reason, for people."""
        if self.text and self.rule is not Rule.SPREAD_DOMAINS:
            return self.text if self.rule is not Rule.CLAIM else f"it {self.text}"
        if self.rule is Rule.TURN:
            return "kube-scheduler takes these first"
        if self.value is None:
            return f"it has no label {self.key}"
        return _WHY.get(self.rule, "pods in {} may not be with one like it").format(f"{self.key} {self.value}")


_WHY = {
    Rule.POD_AFFINITY: "no pod that it has to be with is in {}",
    Rule.POD_ANTI_AFFINITY: "pods that it may not be with are in {}",
    Rule.SPREAD_DOMAINS: "{} would have more such pods than maxSkew",
}
"""By rule, why a domain refuses a pod."""
