"""VolumeBinding: the volumes of a pod can be used on its node, and those that wait for it can be found or made there.

As `pkg/scheduler/framework/plugins/volumebinding/binder.go` and `FindMatchingVolume` of
`k8s.io/component-helpers/storage/volume` (v1.37).
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from admission.api.kubernetes.nodes import Node
from admission.api.scheduling.pod_volumes import IN_TREE
from admission.api.storage.persistent_volumes import (
    BETA_REGION,
    BETA_ZONE,
    NO_PROVISIONER,
    REGION,
    ZONE,
    ClaimRef,
    PersistentVolume,
    StorageClass,
    VolumeClaim,
)
from admission.api.storage.storage import Storage
from admission.api.values import quantities
from admission.api.values.names import NodeName
from admission.api.values.selectors import NodeSelector, NodeTerm, Requirement
from admission.filters.pod_claims import PodClaims
from admission.filters.refusal import Refusal, Rule


@dataclass(frozen=True, slots=True)
class Found:
    """What a node has for the claims that wait: volumes that are there, by claim, and claims to make one for."""

    refusal: Refusal | None = None
    chosen: Mapping[str, PersistentVolume] = field(default_factory=dict)
    made: tuple[VolumeClaim, ...] = ()


class VolumeBinding:
    """The filter for one pod."""

    __slots__ = ("_candidates", "_claims", "_sorted", "_storage")

    def __init__(self, claims: PodClaims, storage: Storage) -> None:
        self._claims = claims
        self._storage = storage
        self._sorted = sorted(claims.waiting, key=lambda claim: claim.size or 0)
        self._candidates = {claim.meta.key: candidates(claim, storage) for claim in claims.waiting}

    def __bool__(self) -> bool:
        """Return whether the filter may refuse any node."""
        return self._claims.refusal is not None or bool(self._claims.bound or self._claims.waiting)

    def refuses(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node."""
        if self._claims.refusal is not None:
            return self._claims.refusal
        for claim, volume in self._claims.bound:
            affinity = self._affinity(volume, node.name)
            if affinity is not None and not affinity.matches("", node.meta.labels):
                return Refusal(Rule.VOLUME, claim.meta.name, text=f"{volume.meta.name} cannot be used there")
        return self.found(node).refusal if self._sorted else None

    def found(self, node: Node) -> Found:
        """Return what becomes of the claims that wait, if the pod goes to a node."""
        for claim in self._sorted:
            if claim.selected_node not in (None, node.name):
                text = f"its volume is made for node {claim.selected_node}"
                return Found(Refusal(Rule.SELECTED, claim.meta.name, text=text))
        chosen: dict[str, PersistentVolume] = {}
        made = [claim for claim in self._sorted if claim.selected_node is not None]
        taken: set[str] = set()
        for claim in self._sorted:
            if claim.selected_node is None:
                volume = matching(claim, self._candidates[claim.meta.key], node.meta.labels, taken)
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

    def reserved(self, node: Node) -> Storage:
        """Return the storage after kube-scheduler has put the pod on a node that takes it."""
        found = self.found(node)
        if not found.chosen and not found.made:
            return self._storage
        claims = {claim.meta.key: claim for claim in self._claims.waiting}
        volumes = {
            volume.meta.name: replace(volume, claim=ClaimRef(one.namespace, one.name, one.uid))
            for key, volume in found.chosen.items()
            for one in (claims[key].meta,)
        }
        made = {claim.meta.key: replace(claim, selected_node=node.name) for claim in found.made}
        return replace(
            self._storage,
            volumes={**self._storage.volumes, **volumes},
            claims={**self._storage.claims, **made},
        )

    def _affinity(self, volume: PersistentVolume, node: NodeName) -> NodeSelector | None:
        """Return the nodes of a volume, as the driver of the node that an in-tree disk is migrated to names them."""
        disk, csi_node = volume.disk, self._storage.nodes.get(node)
        if volume.driver or disk is None or csi_node is None or IN_TREE[disk.kind].plugin not in csi_node.migrated:
            return volume.affinity
        return migrated(volume, IN_TREE[disk.kind].topology)

    def _refuses_provision(self, claim: VolumeClaim, node: Node) -> Refusal | None:
        found = self._storage.classes[claim.class_name or ""]
        if found.provisioner in ("", NO_PROVISIONER):
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


def candidates(claim: VolumeClaim, storage: Storage) -> tuple[PersistentVolume, ...]:
    """Return the volumes that a claim that waits may get on some node, those that are kept for it first."""
    key, name = (claim.meta.namespace, claim.meta.name), claim.class_name or ""
    kept = tuple(one for one in storage.kept.get(key, ()) if one.class_name == name and one.is_for(claim))
    return (*kept, *storage.free.get(name, ()))


def fingerprint(claims: PodClaims, storage: Storage) -> Hashable:
    """Return all that is read of claims that wait, but for the names of those for which volumes are made."""
    return tuple(
        (
            one.class_name,
            one.size,
            one.selected_node,
            one.meta.key if candidates(one, storage) else None,
        )
        for one in claims.waiting
    )


def matching(
    claim: VolumeClaim, volumes: Iterable[PersistentVolume], labels: Mapping[str, str], taken: set[str]
) -> PersistentVolume | None:
    """Return which of its candidates a claim gets on a node with these labels: the smallest that will do.

    A volume that is kept for the claim comes first; if the node cannot use that one, none will do.
    """
    smallest: PersistentVolume | None = None
    for volume in volumes:
        if (
            volume.meta.name in taken
            or volume.capacity < (claim.size or 0)
            or volume.mode != claim.mode
            or volume.attributes_class != claim.attributes_class
            or volume.meta.deleted is not None
        ):
            continue
        is_usable = volume.affinity is None or volume.affinity.matches("", labels)
        if volume.is_for(claim):
            return volume if is_usable else None
        if (
            is_usable
            and (claim.selector is None or claim.selector.matches(volume.meta.labels))
            and claim.access_modes <= volume.access_modes
            and (smallest is None or volume.capacity < smallest.capacity)
        ):
            smallest = volume
    return smallest


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
