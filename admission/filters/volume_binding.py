"""VolumeBinding: the volumes of a pod can be used on its node, and those that wait for it can be found or made there.

As `pkg/scheduler/framework/plugins/volumebinding/binder.go` and `FindMatchingVolume` of
`k8s.io/component-helpers/storage/volume` (v1.37).
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.scheduling.pod_volumes import IN_TREE
from admission.api.storage.assumed_volumes import AssumedVolumes
from admission.api.storage.free_volumes import fits, may_have
from admission.api.storage.persistent_volumes import (
    BETA_REGION,
    BETA_ZONE,
    NO_PROVISIONER,
    REGION,
    ZONE,
    PersistentVolume,
    StorageClass,
    VolumeClaim,
)
from admission.api.storage.storage import Storage
from admission.api.values import quantities
from admission.api.values.names import NodeName
from admission.api.values.selectors import NodeSelector, NodeTerm, Requirement
from admission.filters import pod_claims
from admission.filters.pod_claims import PodClaims
from admission.filters.refusal import Refusal, Rule

BEFORE_OTHERS = "could get a volume that is planned for a pod of lower priority, which waits to be bound"
"""Why a pod waits that kube-scheduler would take first."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a node has for the claims that wait: volumes that are there, by claim, and claims to make one for."""

    refusal: Refusal | None = None
    chosen: Mapping[str, PersistentVolume] = field(default_factory=dict)
    made: tuple[VolumeClaim, ...] = ()

    @property
    def names(self) -> dict[str, str]:
        """Return the names of the volumes by claim."""
        return {key: volume.meta.name for key, volume in self.chosen.items()}


class VolumeBinding:
    """The filter for one pod.

    assumed: what claims of other pods get that are placed and not bound; whoever shares it may change it. shared:
    claims of its gang that several pods use; None: any may be. priority: of the pod, which kube-scheduler takes before
    pods of lower priority that wait; None: it is its turn.
    """

    __slots__ = ("_assumed", "_claims", "_contested", "_kept", "_priority", "_sorted", "_storage", "shared")

    def __init__(
        self,
        claims: PodClaims,
        storage: Storage,
        assumed: AssumedVolumes,
        shared: frozenset[str] | None = None,
        priority: int | None = None,
    ) -> None:
        self._priority = priority
        self._claims = claims
        self._storage = storage
        self._assumed = assumed
        self._sorted = sorted(claims.waiting, key=lambda claim: claim.size or 0)
        self._kept = {claim.meta.key: kept(claim, storage) for claim in claims.waiting}
        self._contested = contested(claims, storage)
        keys = frozenset(claim.meta.key for claim in claims.waiting)
        self.shared = keys if shared is None else keys & shared
        """Claims for which other pods of the gang may bring a volume."""

    def __bool__(self) -> bool:
        """Return whether the filter may refuse any node."""
        return self._claims.refusal is not None or bool(self._claims.bound or self._claims.waiting)

    def with_assumed(self, assumed: AssumedVolumes) -> Self:
        """Return the filter with other volumes that claims get."""
        found = object.__new__(type(self))
        found._claims, found._storage, found._assumed = self._claims, self._storage, assumed
        found._sorted, found._kept = self._sorted, self._kept
        found._contested, found.shared, found._priority = self._contested, self.shared, self._priority
        return found

    def competes(self, other: Pod) -> bool:
        """Return whether it may matter to the pod which volumes another pod of the gang gets."""
        if not self._contested:
            return False
        claims = pod_claims.resolve(other, self._storage)
        return not self._contested.isdisjoint(contested(claims, self._storage))

    def bars(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node, whatever volumes other pods of the gang get first.

        They leave less to choose from, but a claim that is shared may have been given one.
        """
        return self._elsewhere(node) if self.shared else self.refuses(node)

    def refuses(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node."""
        if not self._sorted:
            return self._elsewhere(node)
        return self._elsewhere(node) or self.found(node).refusal or self._takes_from_others(node)

    def _elsewhere(self, node: Node) -> Refusal | None:
        if self._claims.refusal is not None:
            return self._claims.refusal
        for claim, volume in self._claims.bound:
            affinity = self._affinity(volume, node.name)
            if affinity is not None and not affinity.matches("", node.meta.labels):
                return Refusal(Rule.VOLUME, claim.meta.name, text=f"{volume.meta.name} cannot be used there")
        for claim in self._sorted:
            selected = self._selected(claim)
            if selected not in (None, node.name):
                text = f"its volume is made for node {selected}"
                return Refusal(Rule.SELECTED, claim.meta.name, text=text)
        return None

    def found(self, node: Node) -> Found:
        """Return what becomes of the claims that wait, if the pod goes to a node that `bars` does not keep it off."""
        chosen: dict[str, PersistentVolume] = {}
        made = [claim for claim in self._sorted if self._selected(claim) is not None]
        taken: set[str] = set()
        for claim in self._sorted:
            if self._selected(claim) is None:
                volume = self._matching(claim, node.meta.labels, taken)
                if volume is None:
                    made.append(claim)
                else:
                    taken.add(volume.meta.name)
                    chosen[claim.meta.key] = volume
        for claim in made:
            refusal = self._refuses_provision(claim, node)
            if refusal is not None:
                return Found(refusal)
        return Found(None, chosen, tuple(made))

    def usable(self, node: Node) -> Iterator[PersistentVolume]:
        """Yield the free volumes that a claim that waits may get on a node."""
        for claim in self._sorted:
            free = self._storage.free.get(claim.class_name or "")
            for volume in free.usable(node.meta.labels) if free is not None else ():
                if volume.meta.name not in self._assumed.taken and may_have(claim, volume):
                    yield volume

    def _takes_from_others(self, node: Node) -> Refusal | None:
        """Return that the pod could get a volume there which is planned for a pod of lower priority that waits.

        kube-scheduler takes pods of higher priority first (`plugins/queuesort/priority_sort.go`).
        """
        if self._priority is None or not self._assumed.priorities:
            return None
        for claim in self._sorted:
            key, free = claim.meta.key, self._storage.free.get(claim.class_name or "")
            if free is None or self._kept[key] or key in self._assumed.volumes or self._selected(claim) is not None:
                continue
            for volume in free.usable(node.meta.labels):
                others = self._assumed.priorities.get(volume.meta.name)
                if others is not None and others < self._priority and may_have(claim, volume):
                    return Refusal(Rule.CLAIM, claim.meta.name, text=BEFORE_OTHERS)
        return None

    @property
    def needed(self) -> int:
        """Return how many free volumes the pod takes at least: none can be made for these claims, none is kept."""
        classes = self._storage.classes
        return (
            0
            if self.shared
            else sum(
                not _makes(classes[one.class_name or ""])
                and not self._kept[one.meta.key]
                and one.meta.key not in self._assumed.volumes
                for one in self._sorted
            )
        )

    @property
    def wishes(self) -> Hashable:
        """Return which free volumes the claims that wait may get."""
        return tuple(_wish(one) for one in self._sorted)

    @property
    def selected_by(self) -> frozenset[str]:
        """Return the labels by which the claims that wait select volumes."""
        selectors = (one.selector for one in self._sorted)
        return frozenset(rule.key for one in selectors if one is not None for rule in one.requirements)

    @property
    def is_contested(self) -> bool:
        """Return whether there are free volumes that its claims may get."""
        return bool(self._contested)

    def _selected(self, claim: VolumeClaim) -> str | None:
        return claim.selected_node or self._assumed.nodes.get(claim.meta.key)

    def _matching(self, claim: VolumeClaim, labels: Mapping[str, str], taken: set[str]) -> PersistentVolume | None:
        """Return which volume a claim gets on a node with these labels: the smallest that will do.

        A volume that is kept for the claim comes first; if the node cannot use that one, none will do.
        """
        given = self._storage.volumes.get(self._assumed.volumes.get(claim.meta.key, ""))
        for volume in (*self._kept[claim.meta.key], *([given] if given is not None else [])):
            if volume.meta.name not in taken and fits(claim, volume):
                is_usable = volume.affinity is None or volume.affinity.matches("", labels)
                return volume if is_usable else None
        free = self._storage.free.get(claim.class_name or "")
        for volume in free.usable(labels) if free is not None else ():
            name = volume.meta.name
            if name not in taken and name not in self._assumed.taken and may_have(claim, volume):
                return volume
        return None

    def _affinity(self, volume: PersistentVolume, node: NodeName) -> NodeSelector | None:
        """Return the nodes of a volume, as the driver of the node that an in-tree disk is migrated to names them."""
        disk, csi_node = volume.disk, self._storage.nodes.get(node)
        if volume.driver or disk is None or csi_node is None or IN_TREE[disk.kind].plugin not in csi_node.migrated:
            return volume.affinity
        return migrated(volume, IN_TREE[disk.kind].topology)

    def _refuses_provision(self, claim: VolumeClaim, node: Node) -> Refusal | None:
        found = self._storage.classes[claim.class_name or ""]
        if not _makes(found):
            return Refusal(Rule.NO_VOLUME, claim.meta.name, text="no volume that it could have is free there")
        if not found.allows(node.meta.labels):
            text = f"storage class {found.meta.name} makes none there"
            return Refusal(Rule.TOPOLOGIES, claim.meta.name, text=text)
        if claim.size is not None and not self._has_space(claim.size, found, node):
            size = quantities.render(claim.size)
            text = f"storage class {found.meta.name} has no {size} there"
            return Refusal(Rule.SPACE, claim.meta.name, text=text)
        return None

    def _has_space(self, size: int, of_class: StorageClass, node: Node) -> bool:
        driver = self._storage.drivers.get(of_class.provisioner)
        if driver is None or not driver.tells_capacity:
            return True
        return any(
            one.class_name == of_class.meta.name
            and one.largest is not None
            and one.largest >= size
            and one.topology is not None
            and one.topology.matches(node.meta.labels)
            for one in self._storage.capacities.values()
        )


def _makes(of_class: StorageClass) -> bool:
    """Return whether volumes of a class are made when they are needed."""
    return of_class.provisioner not in ("", NO_PROVISIONER)


def kept(claim: VolumeClaim, storage: Storage) -> tuple[PersistentVolume, ...]:
    """Return the volumes that are kept for a claim."""
    found = storage.kept.get((claim.meta.namespace, claim.meta.name), ())
    return tuple(one for one in found if one.class_name == (claim.class_name or "") and one.is_for(claim))


def contested(claims: PodClaims, storage: Storage) -> frozenset[str]:
    """Return the classes of free volumes that the claims of a pod that wait may get."""
    return frozenset(name for one in claims.waiting if (name := one.class_name or "") in storage.free)


def fingerprint(claims: PodClaims, storage: Storage, assumed: AssumedVolumes, shared: frozenset[str]) -> Hashable:
    """Return all that is read of claims that wait, but for the names of those that are the pod's own alone."""

    def name(claim: VolumeClaim) -> str | None:
        key = claim.meta.key
        is_known = key in shared or key in assumed.volumes or key in assumed.nodes or kept(claim, storage)
        return key if is_known else None

    return tuple(
        (one.selected_node, name(one), _wish(one) if (one.class_name or "") in storage.free else _asked(one))
        for one in claims.waiting
    )


def _asked(claim: VolumeClaim) -> Hashable:
    return claim.class_name, claim.size


def _wish(claim: VolumeClaim) -> Hashable:
    return (
        claim.class_name,
        claim.size,
        claim.access_modes,
        claim.mode,
        claim.attributes_class,
        claim.selector,
    )


def assumed_of(pods: Iterable[tuple[PodClaims, Node, int]], storage: Storage) -> AssumedVolumes:
    """Return what the claims of pods get that kube-scheduler places one after the other on these nodes.

    pods: with their priorities.
    """
    found = AssumedVolumes()
    for claims, node, priority in pods:
        binding = VolumeBinding(claims, storage, found)
        if claims.refusal is not None or binding.refuses(node) is not None:
            continue
        here = binding.found(node)
        found.give(here.names)
        found.priorities.update(dict.fromkeys(here.names.values(), priority))
        found.nodes.update((one.meta.key, node.name) for one in here.made)
    return found


def takes_volumes(pod: Pod, storage: Storage) -> bool:
    """Return whether a pod may take one of the volumes that are there, so that others do not get it."""
    return bool(pod.rules.volumes and storage.unbound and contested(pod_claims.resolve(pod, storage), storage))


def may_make(claim: VolumeClaim, storage: Storage) -> bool:
    """Return whether a volume may be made for a claim, so that nobody knows yet which nodes can use it."""
    of_class = storage.classes.get(claim.class_name or "")
    return of_class is not None and _makes(of_class) and not kept(claim, storage)


def undecided(claim: VolumeClaim, storage: Storage) -> bool:
    """Return whether kube-scheduler may give a claim any of several volumes: of equal size, or all kept for it."""
    here = kept(claim, storage)
    free = storage.free.get(claim.class_name or "")
    return len(here) > 1 or (not here and free is not None and free.undecided(claim, storage.selected_by))


def migrated(volume: PersistentVolume, topology: str) -> NodeSelector | None:
    """Return the nodes of a volume as `translateTopologyFromInTreeToCSI` writes them for a CSI driver.

    topology: the driver's label of zones; empty if its nodes have none.
    """
    affinity = volume.affinity
    if not topology:
        return affinity
    terms = affinity.terms if affinity is not None else ()
    keys = {one.key for term in terms for one in term.expressions}
    is_beta = ZONE not in keys and (
        BETA_ZONE in keys or (ZONE not in volume.meta.labels and BETA_ZONE in volume.meta.labels)
    )
    zone = BETA_ZONE if is_beta else ZONE
    if any(one.key == zone and one.values for term in terms for one in term.expressions):
        names = {zone: topology, **({BETA_REGION: REGION} if is_beta else {})}
        return NodeSelector(terms=tuple(_renamed(term, names) for term in terms))
    zones = [one.strip() for one in volume.meta.labels.get(zone, "").split("__")]
    renamed = tuple(_renamed(term, {BETA_REGION: REGION}) for term in terms) if is_beta else terms
    if not any(zones):
        return replace(affinity, terms=renamed) if affinity is not None else None
    wanted = Requirement(key=topology, operator="In", values=tuple(filter(None, zones)))
    with_zone = tuple(replace(term, expressions=(*term.expressions, wanted)) for term in renamed)
    return NodeSelector(terms=with_zone or (NodeTerm(expressions=(wanted,)),))


def _renamed(term: NodeTerm, names: Mapping[str, str]) -> NodeTerm:
    return replace(term, expressions=tuple(replace(one, key=names.get(one.key, one.key)) for one in term.expressions))
