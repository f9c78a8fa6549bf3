"""What allocation reads of the cluster, frozen: nodes, what each of them sees, classes, and what is in use.

`of` makes it from a snapshot and the ledger's open placements. A planned device counts as taken until the allocation
that really happened is seen, and so does a planned pod's place on its node.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from admission.api.claims import Claim
from admission.api.devices import Device, DeviceClass, DeviceId
from admission.api.entries import Placement, Seat
from admission.api.gangs import PlannedPod
from admission.api.names import NodeName, Uid
from admission.api.nodes import Node, Resources
from admission.api.pods import Pod
from admission.api.snapshot import Snapshot
from admission.dra import pools
from admission.dra.pools import Shelf

Left = Mapping[NodeName, Mapping[str, int] | None]
"""What is left of each node's allocatable resources; None for a node that limits nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who has a device: a claim, `namespace/name`, and the gang that it was planned for (empty when not known)."""

    claim: str
    gang: str = ""

    def __str__(self) -> str:
        return f"claim {self.claim}" + (f" of gang {self.gang}" if self.gang else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Displaced:
    """A planned claim that cannot get its devices any more: another claim has some of them. `landing` looks further."""

    claim: Claim
    node: NodeName
    holder: Holder


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class World:
    """The cluster as the allocator sees it.

    taken: devices that are allocated or planned, and for whom. shared: devices of which claims hold shares. pinned:
    planned claims that are not seen allocated yet, by `key_of`, and the node they were planned on. displaced: those of
    them whose planned devices others were given.
    """

    nodes: Mapping[NodeName, Node] = field(default_factory=dict)
    shelves: Mapping[NodeName, Shelf] = field(default_factory=dict)
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    taken: Mapping[DeviceId, Holder] = field(default_factory=dict)
    shared: frozenset[DeviceId] = frozenset()
    left: Left = field(default_factory=dict)
    pinned: Mapping[Uid, NodeName] = field(default_factory=dict)
    displaced: tuple[Displaced, ...] = ()


def of(snapshot: Snapshot, placements: Iterable[Placement], *, before: World | None = None) -> World:
    """Return the world of a snapshot and of what the ledger has open.

    before: the world of an earlier cycle; what did not change is taken from it.
    """
    placements = tuple(placements)
    slices = pools.Slices(snapshot.slices.values())
    taken, shared = _allocated(snapshot.claims.values(), placements)
    by_uid = {claim.meta.uid: claim for claim in snapshot.claims.values()}
    pinned = dict(_pinned(placements, by_uid))
    planned, displaced = _planned(placements, by_uid, taken, pinned)
    taken.update(planned)
    return World(
        nodes=snapshot.nodes,
        shelves={name: _shelf(node, slices, before) for name, node in snapshot.nodes.items()},
        classes=snapshot.classes,
        taken=MappingProxyType(taken),
        shared=frozenset(shared),
        left=_left(snapshot, placements),
        pinned=pinned,
        displaced=displaced,
    )


def device(snapshot: Snapshot, wanted: DeviceId) -> Device | None:
    """Return a device as its newest slice describes it; None when no slice does."""
    found = [
        (slice_.generation, entry)
        for slice_ in snapshot.slices.values()
        if (slice_.driver, slice_.pool) == (wanted.driver, wanted.pool)
        for entry in slice_.devices
        if entry.name == wanted.device
    ]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def key_of(claim: Claim) -> Uid:
    """Return what tells claims apart: the UID, or the name of a claim that has none, as manifests read offline."""
    return claim.meta.uid or Uid(claim.meta.key)


def same(left: World, right: World) -> bool:
    """Return whether the allocator would see no difference. Nodes and shelves that were taken over cost nothing."""
    return all(
        getattr(left, name) == getattr(right, name)
        for name in ("nodes", "shelves", "classes", "taken", "shared", "left", "pinned", "displaced")
    )


def emptied(world: World, *, keep: Collection[DeviceId] = ()) -> World:
    """Return the same cluster with nothing in use but the devices to keep."""
    return replace(
        world,
        taken={device: holder for device, holder in world.taken.items() if device in keep},
        shared=frozenset(),
        left={name: node.allocatable for name, node in world.nodes.items()},
    )


def granted(world: World, planned: Iterable[PlannedPod], pods: Mapping[Uid, Pod], gang: str) -> World:
    """Return the world after a plan was granted in this cycle. pods: those of the plan, by UID."""
    taken, left, pinned = dict(world.taken), dict(world.left), dict(world.pinned)
    for place in planned:
        for claim in place.claims:
            pinned[claim.uid or Uid(claim.claim)] = place.node
            taken.update({given.device: Holder(claim=claim.claim, gang=gang) for given in claim.devices})
        left[place.node] = _less(left.get(place.node), pods[place.uid].requests)
    return replace(world, taken=taken, left=left, pinned=pinned)


def _shelf(node: Node, slices: pools.Slices, before: World | None) -> Shelf:
    known = before.shelves.get(node.name) if before is not None else None
    if known is not None and pools.unchanged(known, node, slices):
        return known
    return pools.gather(node, slices)


def _allocated(
    claims: Iterable[Claim], placements: Iterable[Placement]
) -> tuple[dict[DeviceId, Holder], set[DeviceId]]:
    """Return the devices that claims have for themselves, and those of which they have shares."""
    gangs = {uid: placement.gang for placement in placements for uid in placement.holdings}
    taken: dict[DeviceId, Holder] = {}
    shared: set[DeviceId] = set()
    for claim in claims:
        for result in claim.allocation.devices if claim.allocation is not None else ():
            if result.admin_access:
                continue
            if result.share_id:
                shared.add(result.device)
            else:
                taken[result.device] = Holder(claim=claim.meta.key, gang=gangs.get(claim.meta.uid, ""))
    return taken, shared


def _planned(
    placements: Iterable[Placement],
    claims: Mapping[Uid, Claim],
    taken: Mapping[DeviceId, Holder],
    pinned: Mapping[Uid, NodeName],
) -> tuple[dict[DeviceId, Holder], tuple[Displaced, ...]]:
    """Return the devices of claims that are planned and not allocated yet, and the claims whose devices are gone.

    kube-scheduler takes pods of one node in its own order, so one may be given the device that another was planned on.
    """
    planned: dict[DeviceId, Holder] = {}
    displaced: list[Displaced] = []
    for placement in placements:
        for uid, holding in placement.holdings.items():
            claim = claims.get(uid)
            if _seen(claim):
                continue
            holder = Holder(claim=holding.claim, gang=placement.gang)
            if claim is not None and uid in pinned and any(given.device in taken for given in holding.devices):
                displaced.append(Displaced(claim=claim, node=pinned[uid], holder=holder))
            else:
                planned.update({given.device: holder for given in holding.devices})
    return planned, tuple(displaced)


def _pinned(placements: Iterable[Placement], claims: Mapping[Uid, Claim]) -> Iterable[tuple[Uid, NodeName]]:
    """Yield where claims will be allocated that pods wait for, whichever gang pays for them."""
    open_ = {uid for placement in placements for uid in placement.holdings if not _seen(claims.get(uid))}
    for placement in placements:
        for seat in placement.seats.values():
            for uid in seat.claims:
                if uid in open_:
                    yield uid, seat.node


def _seen(claim: Claim | None) -> bool:
    return claim is not None and claim.allocation is not None


def _left(snapshot: Snapshot, placements: Iterable[Placement]) -> dict[NodeName, Mapping[str, int] | None]:
    """Return allocatable less the requests of bound, unfinished pods and of granted pods that are not bound yet."""
    left: dict[NodeName, Mapping[str, int] | None] = {name: node.allocatable for name, node in snapshot.nodes.items()}
    for pod in snapshot.pods.values():
        if pod.node in left and not pod.finished:
            left[pod.node] = _less(left[pod.node], pod.requests)
    for seat in (seat for placement in placements for seat in placement.seats.values()):
        waiting = _waiting(seat, snapshot)
        if waiting is not None and seat.node in left:
            left[seat.node] = _less(left[seat.node], waiting.requests)
    return left


def _waiting(seat: Seat, snapshot: Snapshot) -> Pod | None:
    """Return the pod of a seat, unless it is bound, finished or gone."""
    pod = snapshot.pods.get(seat.pod_uid)
    return None if pod is None or pod.node or pod.finished else pod


def _less(left: Mapping[str, int] | None, requests: Resources) -> Mapping[str, int] | None:
    if left is None:
        return None
    return {resource: amount - requests.get(resource, 0) for resource, amount in left.items()}
