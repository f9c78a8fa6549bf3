"""What kube-scheduler has decided for claims that wait, or will have by then, before the API shows it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from admission.api.values.names import NodeName


@dataclass(slots=True)
class AssumedVolumes:
    """By claim (`namespace/name`) the volume that it gets, and the node for which its volume is made.

    taken: the volumes that somebody gets. priorities: of pods that get them, by volume, where they wait to be bound.
    """

    volumes: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, NodeName] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    priorities: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Self:
        """Return a copy that changes by itself."""
        return type(self)(dict(self.volumes), dict(self.nodes), set(self.taken), dict(self.priorities))

    def give(self, chosen: Mapping[str, str]) -> None:
        """Give volumes to claims. chosen: by claim."""
        self.volumes.update(chosen)
        self.taken.update(chosen.values())
