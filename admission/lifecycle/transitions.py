"""Transitions after a grant: settle allocated claims, release what is gone, complete a placement, or evict the gang.

A placement in the ledger is compared with the snapshot. The same rules serve normal operation and recovery after a
controller failed: a granted gang that is not placed is placed, and one that can no longer start is evicted.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from admission.accounting import books
from admission.accounting.books import Book
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import Device, DeviceId, Slice
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import Charge
from admission.api.muster.ledger_entries import Entry, Holding, Placement, Seat
from admission.api.muster.meters import Measure
from admission.api.snapshot import Snapshot, changed
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.dra.inventory.pools import PoolId
from admission.dra.metering import device_meters, holdings
from admission.dra.metering.device_meters import ChargeError, Meters
from admission.dra.planner import pod_groups
from admission.dra.requests import extended_resources
from admission.workloads.gangs import Group


def index_devices(snapshot: Snapshot) -> dict[DeviceId, Device]:
    """Return every device by its id, from the newest generation of its pool."""
    return _index(snapshot.slices.values())


def _index(slices: Iterable[Slice]) -> dict[DeviceId, Device]:
    newest: dict[DeviceId, tuple[int, Device]] = {}
    for slice_ in slices:
        for device in slice_.devices:
            device_id = DeviceId(slice_.driver, slice_.pool, device.name)
            if device_id not in newest or newest[device_id][0] < slice_.generation:
                newest[device_id] = (slice_.generation, device)
    return {device_id: device for device_id, (_, device) in newest.items()}


class Devices(Mapping[DeviceId, Device]):
    """Every device by its id, from the newest generation of its pool; a pool is indexed when first needed.

    Equal to `index_devices`, but faster when few of many devices are looked up. previous: the devices of an earlier
    snapshot; of pools whose slices are the same since, their index is taken.
    """

    def __init__(self, snapshot: Snapshot, previous: "Devices | None" = None) -> None:
        self.snapshot = snapshot
        self.pools: dict[PoolId, list[Slice]] = {}
        self.indexed: dict[PoolId, Mapping[DeviceId, Device]] = {}
        before, now = previous.snapshot.slices if previous is not None else {}, snapshot.slices
        keys = changed(before, now)
        stale = {(one.driver, one.pool) for key in keys for one in (before.get(key), now.get(key)) if one is not None}
        if previous is not None:
            self.pools = {pool: slices for pool, slices in previous.pools.items() if pool not in stale}
            self.indexed = {pool: devices for pool, devices in previous.indexed.items() if pool in self.pools}
        for slice_ in now.values() if stale else ():
            pool = slice_.driver, slice_.pool
            if pool in stale:
                self.pools.setdefault(pool, []).append(slice_)

    def __getitem__(self, device: DeviceId) -> Device:
        pool = (device.driver, device.pool)
        devices = self.indexed.get(pool)
        if devices is None:
            devices = self.indexed[pool] = _index(self.pools.get(pool, ()))
        return devices[device]

    def __iter__(self) -> Iterator[DeviceId]:
        return iter(index_devices(self.snapshot))

    def __len__(self) -> int:
        return len(index_devices(self.snapshot))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedAllocations:
    """The state of the claims, devices and pods of placements, as the snapshot shows it."""

    snapshot: Snapshot
    index: extended_resources.Index
    devices: Devices
    meters: Meters

    @property
    def claims(self) -> Mapping[Uid, Claim]:
        """All claims, by `extended_resources.index_claims`."""
        return self.index.claims

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, meters: Meters, previous: Self | None = None) -> Self:
        """Index a snapshot. previous: an earlier result; indices of unchanged objects are taken from it.

        A result is frozen and several may follow one, so each is built from an earlier one instead of being declared
        over `admission.incremental`, which follows one history.
        """
        same_slices = previous is not None and previous.snapshot.slices is snapshot.slices
        return cls(
            snapshot=snapshot,
            index=extended_resources.Index.from_snapshot(snapshot, previous.index if previous is not None else None),
            devices=previous.devices
            if previous is not None and same_slices
            else Devices(snapshot, previous.devices if previous is not None else None),
            meters=meters,
        )

    def is_unreadable(self, kind: str, key: str) -> bool:
        """Whether an object exists but is malformed; then its absence from the snapshot proves nothing."""
        return (kind, key) in self.snapshot.malformed


def settlement(placement: Placement, observed: ObservedAllocations, *, at: datetime, actor: str) -> Entry | None:
    """Return the entry that replaces planned by allocated devices, for every newly allocated claim."""
    return books.settle(placement, allocated(placement, observed, settled=False), at=at, actor=actor)


def adjustment(placement: Placement, observed: ObservedAllocations, *, at: datetime, actor: str) -> Entry | None:
    """Return the entry for settled claims that were deallocated and then allocated differently.

    Differently means other devices, or shares that consume other amounts. A claim whose price changed only because a
    meter was changed, added or removed keeps its charge.
    """
    allocations = allocated(placement, observed, settled=True)
    differing = {uid: new for uid, new in allocations.items() if _differs(placement.holdings[uid], new, observed)}
    return books.readjust(placement, differing, at=at, actor=actor)


def unreserved(_: str, claim: Claim) -> Claim | None:
    """Return a claim if Muster allocated it and no pod has reserved it."""
    return claim if not claim.reserved_for and is_allocated_by_muster(claim) else None


def is_allocated_by_muster(claim: Claim) -> bool:
    """Return whether a claim has an allocation that Muster wrote."""
    return claim.allocation is not None and names.PLACEMENT in claim.meta.annotations


def claims_in_use(placements: Iterable[Placement], observed: ObservedAllocations) -> frozenset[Uid]:
    """Return the claims that unfinished pods with a seat use, in any gang: a shared claim ends with the last one."""
    return frozenset(
        claim
        for placement in placements
        for seat in placement.seats.values()
        if not _has_ended(seat, observed)
        for claim in seat.claims
    )


class ClaimsInUse(Container[Uid]):
    """Equal to `claims_in_use` of all placements of a ledger, but faster when few claims are looked up."""

    def __init__(self, users: Mapping[Uid, frozenset[Uid]], book: Book, observed: ObservedAllocations) -> None:
        """users: by claim, the pods with a seat that use it."""
        self._users = users
        self._book = book
        self._observed = observed

    def __contains__(self, claim: object) -> bool:
        """Return whether an unfinished pod uses a claim, by its UID."""
        return isinstance(claim, str) and any(not _has_ended(seat, self._observed) for seat in self.seats(Uid(claim)))

    def seats(self, claim: Uid) -> Iterator[Seat]:
        """Yield the seats of the pods that use a claim."""
        for pod in self._users.get(claim, ()):
            yield self._book.placements[self._book.owners[pod]].seats[pod]


def release(
    placement: Placement, observed: ObservedAllocations, in_use: Container[Uid], *, at: datetime, actor: str
) -> Entry | None:
    """Return the entry that releases what is gone. in_use: `claims_in_use` of all placements.

    A seat ends with its pod. A holding ends when its claim is gone, or when the claim is not allocated and no pod that
    would use it is left; while such a pod exists, kube-scheduler may still allocate the claim, so it stays charged.
    What a pod has of its node ends with the pod.
    """
    pods = {uid for uid, seat in placement.seats.items() if _has_ended(seat, observed)}
    claims = {uid for uid, holding in placement.holdings.items() if _is_free(uid, holding, observed, in_use)}
    reason = "the pods have ended and their claims are free" if claims else "the pods have ended"
    return books.release(placement, pods=pods, claims=claims, at=at, actor=actor, reason=reason)


def allocated(placement: Placement, observed: ObservedAllocations, *, settled: bool) -> dict[Uid, books.Allocated]:
    """Return the allocations of claims: of those that the ledger has settled, or of the others.

    What a pod has of its node is in use as soon as the pod is bound. The planned charge stays if a device has left
    its slice or has no price, and on meters that are gone or malformed, so that no quota becomes free by that.
    """
    found: dict[Uid, books.Allocated] = {}
    for uid, holding in placement.holdings.items():
        if holding.settled is not settled:
            continue
        allocation = _resources_of_pod(uid, holding, observed) or _allocation(uid, holding, observed)
        if allocation is not None:
            unmetered = {
                meter: amount for meter, amount in holding.charge.items() if meter not in observed.meters.meters
            }
            found[uid] = allocation._replace(charge={**allocation.charge, **unmetered})
    return found


def _resources_of_pod(uid: Uid, holding: Holding, observed: ObservedAllocations) -> books.Allocated | None:
    """Return what a bound pod takes of its node without a claim, as the pod was stored.

    Of resources that classes offer it is what was planned: whether DRA or a device plugin serves them, the plan said.
    """
    owner = names.pod_of_resources_claim(uid)
    pod = observed.snapshot.pods.get(owner) if owner is not None else None
    if pod is None or not pod.node:
        return None
    offered = extended_resources.resources_of(pod.containers, observed.snapshot.classes)
    requested = holdings.of_node(pod.taken, {name for name in offered if name not in holding.classes})
    return books.Allocated(
        (), holdings.charge(observed.meters, requested), holdings.counted_of(observed.meters, requested)
    )


def _allocation(uid: Uid, holding: Holding, observed: ObservedAllocations) -> books.Allocated | None:
    claim = observed.claims.get(uid)
    if claim is None or claim.allocation is None:
        return None
    results = claim.allocation.devices
    charge = price(claim, observed)
    return books.Allocated(
        tuple(result.given for result in results),
        holding.charge if charge is None else charge,
        holdings.classes(observed.meters, claim.spec, ((result.given, result.admin_access) for result in results)),
    )


def price(claim: Claim, observed: ObservedAllocations) -> Charge | None:
    """Return the charge for a claim's allocation; None if a device has left its slice or has no price."""
    priced: list[device_meters.PricedDevice] = []
    for result in claim.allocation.devices if claim.allocation else ():
        device = observed.devices.get(result.device)
        if device is None:
            return None
        priced.append(device_meters.PricedDevice(result.given, device, result.admin_access, result.consumed or None))
    charge = device_meters.charge(observed.meters, claim.spec, priced)
    return None if isinstance(charge, ChargeError) else charge


def pods_to_open(group: Group) -> list[tuple[Pod, NodeName]]:
    """Return the pods that were granted a node but whose gate is still closed, equal ones in the planner's order.

    The ledger does not keep the order in which the gates must open. Were equal pods opened in another one, each would
    get the devices that were booked for the next.
    """
    if group.placement is None:
        return []
    pods = sorted(group.granted_pods, key=lambda pod: pod_groups.natural(pod.meta.name))
    return [(pod, group.placement.seats[pod.meta.uid].node) for pod in pods]


def _differs(holding: Holding, allocation: books.Allocated, observed: ObservedAllocations) -> bool:
    """Return whether a claim has other devices than the ledger, or shares that consume other amounts.

    Of a pod, whether it takes other amounts of the resources that the ledger has; a meter that came or went is none.
    """
    if names.pod_of_resources_claim(holding.claim_uid) is not None:
        return any(allocation.classes.get(name, amount) != amount for name, amount in holding.classes.items())
    if sorted(holding.devices) != sorted(allocation.devices):
        return True
    claim = observed.claims.get(holding.claim_uid)
    if claim is None or claim.allocation is None or not any(result.consumed for result in claim.allocation.devices):
        return False
    meters = observed.meters.meters
    measuring = {name for name in meters if any(one.measure is Measure.CAPACITY for one in meters[name].sources)}
    return any(allocation.charge.get(name) != amount for name, amount in holding.charge.items() if name in measuring)


def _has_ended(seat: Seat, observed: ObservedAllocations) -> bool:
    pod = observed.snapshot.pods.get(seat.pod_uid)
    return is_lost(seat, observed) if pod is None else pod.finished


def is_lost(seat: Seat, observed: ObservedAllocations) -> bool:
    """Whether the pod does not exist any more, and is not just malformed."""
    return seat.pod_uid not in observed.snapshot.pods and not observed.is_unreadable("Pod", seat.pod)


def _is_free(uid: Uid, holding: Holding, observed: ObservedAllocations, in_use: Container[Uid]) -> bool:
    owner = names.pod_of_resources_claim(uid)
    if owner is not None:
        pod = observed.snapshot.pods.get(owner)
        return not observed.is_unreadable("Pod", holding.claim) if pod is None else pod.finished
    claim = observed.claims.get(uid)
    if claim is None and names.is_extended_claim(uid) and uid in in_use:
        return False
    if claim is None:
        return not observed.is_unreadable("ResourceClaim", holding.claim)
    return claim.allocation is None and uid not in in_use
