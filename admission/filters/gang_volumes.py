"""The free volumes that the pods of one gang compete for, and what a search knows of them.

A volume goes by a token: one that a single node can use is only told from others of that node by what claims read of
it, so that nodes with equal local disks are equal to a search.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from admission.api.kubernetes.nodes import Node
from admission.api.storage.assumed_volumes import AssumedVolumes
from admission.api.storage.persistent_volumes import PersistentVolume
from admission.api.values.names import NodeName
from admission.filters.refusal import Nodes
from admission.filters.volume_binding import VolumeBinding

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GangVolumes:
    """The volumes. bindings: by number, the filters of pods that compete, before any pod of the gang is placed.

    on: by node, the free volumes that it can use. tokens: by volume. wanted: by number, the tokens of the volumes that
    its pods may get, and how many such volumes there are. shared: claims that several pods use. are_alike: whether the
    order of pods makes no difference: each volume is of one node, and all pods ask the same.
    """

    bindings: Mapping[int, VolumeBinding]
    assumed: AssumedVolumes
    on: Mapping[NodeName, Tokens] = field(default_factory=dict)
    tokens: Mapping[str, int] = field(default_factory=dict)
    wanted: Mapping[int, tuple[frozenset[int], int]] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    are_alike: bool = False

    def most(self, number: int, there: Tokens, spent: Iterable[int]) -> int | None:
        """Return how many pods of a number the volumes of a node serve at most; None for any number.

        there: `on` of the node; spent: the tokens that pods of the gang have got there.
        """
        needed = self.bindings[number].needed if number in self.bindings else 0
        if not needed:
            return None
        left = Counter(there)
        left.subtract(spent)
        tokens, _ = self.wanted[number]
        return sum(count for token, count in left.items() if token in tokens) // needed

    def are_too_few(self, pods: Mapping[int, int]) -> bool:
        """Return whether all volumes together are too few for these pods. pods: how many of each number."""
        needed: Counter[Hashable] = Counter()
        left: dict[Hashable, int] = {}
        for number, binding in self.bindings.items():
            needed[binding.wishes] += pods.get(number, 0) * binding.needed
            left[binding.wishes] = self.wanted[number][1]
        return any(amount > left[wishes] for wishes, amount in needed.items())


def build(bindings: Mapping[int, VolumeBinding], assumed: AssumedVolumes, nodes: Nodes) -> GangVolumes | None:
    """Return the volumes for which pods of a gang compete; None if none do. bindings: of those that do, by number."""
    if not bindings:
        return None
    shared = frozenset(claim for binding in bindings.values() for claim in binding.shared)
    by_wishes = {binding.wishes: binding for binding in bindings.values()}
    usable: dict[NodeName, dict[str, PersistentVolume]] = {}
    wanted: dict[Hashable, dict[str, PersistentVolume]] = {wishes: {} for wishes in by_wishes}
    for node in nodes.values():
        for wishes, binding in by_wishes.items():
            found = {volume.meta.name: volume for volume in binding.usable(node)}
            wanted[wishes].update(found)
            usable.setdefault(node.name, {}).update(found)
    times = Counter(name for volumes in usable.values() for name in volumes)
    labels = frozenset(key for binding in bindings.values() for key in binding.selected_by)
    numbers: dict[Hashable, int] = {}
    tokens = {
        name: numbers.setdefault(name if shared or times[name] > 1 else _read(volume, labels), len(numbers))
        for volumes in usable.values()
        for name, volume in volumes.items()
    }
    return GangVolumes(
        bindings=bindings,
        assumed=assumed,
        on={node: tuple(sorted(tokens[name] for name in volumes)) for node, volumes in usable.items()},
        tokens=tokens,
        wanted={
            number: (frozenset(tokens[name] for name in found), len(found))
            for number, binding in bindings.items()
            for found in (wanted[binding.wishes],)
        },
        shared=shared,
        are_alike=not shared and len(by_wishes) == 1 and all(count == 1 for count in times.values()),
    )


def _read(volume: PersistentVolume, labels: frozenset[str]) -> Hashable:
    """Return all that claims read of a volume beside where it can be used."""
    return (
        volume.class_name,
        volume.capacity,
        volume.access_modes,
        volume.mode,
        volume.attributes_class,
        tuple((key, volume.meta.labels.get(key)) for key in sorted(labels)),
    )


class VolumeSearch:
    """The volumes that pods have got in one search. Pods are taken back in the reverse order."""

    def __init__(self, volumes: GangVolumes) -> None:
        self._assumed = volumes.assumed.copy()
        self._volumes = volumes
        self._bindings = {number: one.beside(self._assumed) for number, one in volumes.bindings.items()}
        self._given: list[dict[str, str]] = []
        """For each pod, the volumes that nobody had before, by claim."""

    def binding(self, number: int) -> VolumeBinding | None:
        """Return the filter of pods of a number in this search; None if they compete with nobody."""
        return self._bindings.get(number)

    def assume(self, number: int, node: Node) -> Tokens:
        """Give a pod its volumes on a node; return their tokens."""
        binding, assumed = self._bindings.get(number), self._assumed
        chosen = binding.found(node).names if binding is not None else {}
        new = {claim: volume for claim, volume in chosen.items() if volume not in assumed.taken}
        assumed.taken.update(new.values())
        # Pods of one number have claims of other names: only those that they share are known by theirs.
        assumed.volumes.update((claim, volume) for claim, volume in new.items() if claim in self._volumes.shared)
        self._given.append(new)
        return self._tokens(new)

    def take_back(self) -> Tokens:
        """Take back the volumes of the pod that was placed last; return their tokens."""
        new = self._given.pop()
        self._assumed.taken.difference_update(new.values())
        for claim in self._volumes.shared.intersection(new):
            del self._assumed.volumes[claim]
        return self._tokens(new)

    def _tokens(self, given: Mapping[str, str]) -> Tokens:
        tokens = self._volumes.tokens
        return tuple(tokens[volume] for volume in given.values() if volume in tokens)
