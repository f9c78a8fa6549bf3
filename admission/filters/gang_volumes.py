"""The free volumes that the pods of one gang compete for, and what a search knows of them.

A volume goes by a token: one that a single node can use only by what claims read of it, so that nodes with equal local
disks are equal to a search.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.storage.assumed_volumes import AssumedVolumes
from admission.api.storage.persistent_volumes import PersistentVolume
from admission.api.values.names import NodeName
from admission.filters import pod_claims
from admission.filters.placed_pods import PlacedPods
from admission.filters.refusal import Nodes
from admission.filters.volume_binding import VolumeBinding

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GangVolumes:
    """The volumes. bindings: by number, the filters of pods that compete, before any pod of the gang is placed.

    on: by node, the free volumes that it can use. tokens: by volume. wanted: by number, the volumes that its pods may
    get. needed: by number, how many of them a pod takes at least. shared: claims that several pods use. commute:
    whether the order of pods makes no difference: each volume is of one node, and all pods ask the same.
    """

    bindings: Mapping[int, VolumeBinding]
    assumed: AssumedVolumes
    on: Mapping[NodeName, Tokens] = field(default_factory=dict)
    tokens: Mapping[str, int] = field(default_factory=dict)
    wanted: Mapping[int, frozenset[str]] = field(default_factory=dict)
    needed: Mapping[int, int] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    commute: bool = False
    _known: dict[int, frozenset[int]] = field(default_factory=dict, init=False)

    def most(self, number: int, there: Tokens, spent: Iterable[int]) -> int | None:
        """Return how many pods of a number the volumes of a node serve at most; None for any number.

        there: `on` of the node; spent: the tokens that pods of the gang have got there.
        """
        needed = self.needed.get(number, 0)
        if not needed:
            return None
        left = Counter(there)
        left.subtract(spent)
        tokens = self._wanted_tokens(number)
        return sum(count for token, count in left.items() if token in tokens) // needed

    def _wanted_tokens(self, number: int) -> frozenset[int]:
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = frozenset(self.tokens[name] for name in self.wanted[number])
        return known


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
    sets = {wishes: frozenset(found) for wishes, found in wanted.items()}
    return GangVolumes(
        bindings=bindings,
        assumed=assumed,
        on={node: tuple(sorted(tokens[name] for name in volumes)) for node, volumes in usable.items()},
        tokens=tokens,
        wanted={number: sets[binding.wishes] for number, binding in bindings.items()},
        needed={number: binding.needed for number, binding in bindings.items()},
        shared=shared,
        commute=not shared and len(by_wishes) == 1 and all(count == 1 for count in times.values()),
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


def are_found(pods: Iterable[tuple[NodeName, Pod]], placed: PlacedPods, nodes: Nodes) -> bool:
    """Return whether pods that come to these nodes in this order find volumes for all claims that wait."""
    storage = placed.storage
    if storage is None or not storage.unbound:
        return True
    assumed = placed.assumed(nodes).copy()
    for name, pod in pods:
        if name not in nodes or not pod.rules.volumes:
            continue
        claims, node = pod_claims.resolve(pod, storage), nodes[name]
        binding = VolumeBinding(claims, storage, assumed)
        if claims.refusal is not None or binding.refuses(node) is not None:
            return False
        here = binding.found(node)
        assumed.give(here.names)
        assumed.nodes.update((one.meta.key, name) for one in here.made)
    return True


class VolumeSearch:
    """The volumes that pods have got in one search. Pods are forgotten in the reverse order."""

    def __init__(self, volumes: GangVolumes) -> None:
        self._assumed = volumes.assumed.copy()
        self._volumes = volumes
        self._bindings = {number: one.with_assumed(self._assumed) for number, one in volumes.bindings.items()}
        self._given: list[dict[str, str]] = []
        """For each pod, the volumes that were free before, by claim."""
        sets = frozenset(volumes.wanted.values())
        self._left = {one: len(one) for one in sets}
        """By set of volumes that pods want, how many of them are free."""
        self._within = {
            one: [
                number for number, wanted in volumes.wanted.items() if wanted <= one and volumes.bindings[number].needed
            ]
            for one in sets
        }
        """By set, the numbers of pods that can get no other volumes."""

    def binding(self, number: int) -> VolumeBinding | None:
        """Return the filter of pods of a number in this search; None if they compete for no volume."""
        return self._bindings.get(number)

    def are_too_few(self, pods: Mapping[int, int]) -> bool:
        """Return whether the volumes that are left are too few for these pods. pods: how many of each number."""
        needed = self._volumes.needed
        return any(
            sum(pods.get(number, 0) * needed[number] for number in numbers) > self._left[wanted]
            for wanted, numbers in self._within.items()
        )

    def _count(self, volumes: Iterable[str], times: int) -> None:
        for volume in volumes:
            for wanted in self._left:
                self._left[wanted] += times * (volume in wanted)

    def assume(self, number: int, node: Node) -> Tokens:
        """Give a pod its volumes on a node; return their tokens."""
        binding, assumed = self._bindings.get(number), self._assumed
        chosen = binding.found(node).names if binding is not None else {}
        new = {claim: volume for claim, volume in chosen.items() if volume not in assumed.taken}
        assumed.taken.update(new.values())
        self._count(new.values(), -1)
        # Pods of one number have claims of other names: only those that they share are known by theirs.
        assumed.volumes.update((claim, volume) for claim, volume in new.items() if claim in self._volumes.shared)
        self._given.append(new)
        return self._tokens(new)

    def forget(self) -> Tokens:
        """Free the volumes of the pod that was assumed last; return their tokens."""
        new = self._given.pop()
        self._assumed.taken.difference_update(new.values())
        self._count(new.values(), 1)
        for claim in self._volumes.shared.intersection(new):
            del self._assumed.volumes[claim]
        return self._tokens(new)

    def _tokens(self, given: Mapping[str, str]) -> Tokens:
        tokens = self._volumes.tokens
        return tuple(tokens[volume] for volume in given.values() if volume in tokens)
