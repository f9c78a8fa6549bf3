"""The objects from which the use of devices and nodes was counted, compared by identity."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceClass
from admission.api.kubernetes.nodes import Namespace, Node
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Snapshot
from admission.api.storage.storage import Storage
from admission.api.values.names import NodeName, Uid
from admission.incremental import are_same


@dataclass(frozen=True, slots=True, eq=False)
class Sources:
    """The inputs from which the use of devices and nodes was counted."""

    nodes: Mapping[NodeName, Node]
    pods: Mapping[Uid, Pod]
    claims: Mapping[str, Claim]
    classes: Mapping[str, DeviceClass]
    namespaces: Mapping[str, Namespace]
    placements: tuple[Placement, ...]
    storage: Storage | None = None

    @classmethod
    def of(cls, snapshot: Snapshot, placements: tuple[Placement, ...]) -> Self:
        """Return the inputs of a snapshot and the ledger's open placements."""
        one = snapshot
        return cls(one.nodes, one.pods, one.claims, one.classes, one.namespaces, placements, one.storage)

    def same(self, other: "Sources") -> bool:
        """Return whether these are the same objects."""
        return (
            self.nodes is other.nodes
            and self.pods is other.pods
            and self.claims is other.claims
            and self.classes is other.classes
            and self.namespaces is other.namespaces
            and self.storage is other.storage
            and are_same(self.placements, other.placements)
        )
