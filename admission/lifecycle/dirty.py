"""Dirty gangs: those in the ledger for which a new entry may follow, because their inputs have changed.

`transitions` derives settlements, adjustments and releases from a gang's placement, its pods and claims, and their
devices. While all of these are the same objects, it derives nothing new, so the gang can be skipped.

What is kept here is a set of gangs that stay dirty until they were examined and nothing followed, not a value that is
derived from its inputs alone; so it is no declaration over `admission.incremental`. The law is tested beside it: what
dirty gangs lead to is what an examination of all gangs leads to (`tests/property/test_cycles.py`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Snapshot, changed
from admission.api.values import names
from admission.api.values.names import GangUid, Uid
from admission.dra.inventory.pools import PoolId
from admission.dra.metering.device_meters import Meters
from admission.incremental import Inverted
from admission.lifecycle.transitions import ObservedAllocations


@dataclass(slots=True)
class DirtyGangs:
    """The gangs to examine, and the inputs of the last examination. One per leader.

    Rule: `refresh` adds gangs, and drops those that left the ledger; all others stay until `mark_clean`.
    """

    _snapshot: Snapshot = field(default_factory=Snapshot)
    _meters: Meters | None = None
    _placements: Mapping[GangUid, Placement] = field(default_factory=dict)
    _by_pool: Inverted[Placement, PoolId, GangUid] = field(default_factory=lambda: Inverted(_pools))
    """By pool, the gangs that hold devices of it."""
    _dirty: set[GangUid] = field(default_factory=set)
    _followed: set[GangUid] = field(default_factory=set)
    """Gangs with an entry in this cycle; posting it may fail, so they stay dirty."""

    def refresh(self, book: Book, observed: ObservedAllocations, users: Mapping[Uid, Collection[Uid]]) -> None:
        """Mark the gangs whose inputs changed. users: by the UID of a claim, the pods with a seat that use it."""
        previous, snapshot, by_pool = self._snapshot, observed.snapshot, self._by_pool.update(book.placements)
        unchanged = (previous.malformed == snapshot.malformed, previous.classes == snapshot.classes)
        if self._meters is not observed.meters or not all(unchanged):
            self._dirty = set(book.placements)
        else:
            self._dirty |= set(changed(self._placements, book.placements))
            self._dirty |= set(_by_pods(previous, snapshot, book))
            self._dirty |= set(_by_claims(previous, snapshot, book, users))
            self._dirty |= set(_by_slices(previous, snapshot, by_pool))
            self._dirty |= {gang for uid in self._dirty for gang in _payers(uid, book, self._placements)}
        self._dirty &= book.placements.keys()
        self._snapshot, self._meters, self._placements = snapshot, observed.meters, book.placements

    def placements(self, book: Book) -> Iterator[Placement]:
        """Yield the placements of dirty gangs."""
        return (placement for uid, placement in book.placements.items() if uid in self._dirty)

    def mark_followed(self, uid: GangUid) -> None:
        """Record that an entry for a gang was derived."""
        self._followed.add(uid)

    def mark_clean(self) -> None:
        """Mark all gangs clean but those with an entry in this cycle."""
        self._dirty, self._followed = self._followed, set()


def _by_pods(previous: Snapshot, snapshot: Snapshot, book: Book) -> Iterator[GangUid]:
    """Yield the gangs with a seat of a changed pod, and those charged for what it has of its node."""
    for uid in changed(previous.pods, snapshot.pods):
        # A gang that was evicted has no seats any more, and is charged until its pods are gone.
        yield from _owners((uid, names.resources_claim(uid)), book)


def _owners(uids: Iterable[Uid], book: Book) -> Iterator[GangUid]:
    return (book.owners[uid] for uid in uids if uid in book.owners)


def _by_claims(
    previous: Snapshot, snapshot: Snapshot, book: Book, users: Mapping[Uid, Collection[Uid]]
) -> Iterator[GangUid]:
    """Yield the gangs charged for a changed claim, and those with a pod that uses it."""
    keys = changed(previous.claims, snapshot.claims)
    found = (claims.get(key) for key in keys for claims in (previous.claims, snapshot.claims))
    found_claims = [claim for claim in found if claim is not None]
    if not found_claims:
        return
    # The ledger keys a claim that kube-scheduler made for extended resources by its pod.
    pods = {
        Uid(uid) for claim in found_claims for uid in (*claim.reserved_for, *(owner.uid for owner in claim.meta.owners))
    }
    yield from _owners(pods | {names.extended_claim(pod) for pod in pods}, book)
    uids = {claim.meta.uid for claim in found_claims}
    using = {pod for uid in uids for pod in users.get(uid, ())}
    yield from _owners(uids | using, book)


def _by_slices(
    previous: Snapshot, snapshot: Snapshot, by_pool: Mapping[PoolId, Collection[GangUid]]
) -> Iterator[GangUid]:
    """Yield the gangs that hold a device of a pool with a changed slice. by_pool: those that hold devices of each."""
    for key in changed(previous.slices, snapshot.slices):
        for slice_ in filter(None, (previous.slices.get(key), snapshot.slices.get(key))):
            yield from by_pool.get((slice_.driver, slice_.pool), ())


def _pools(placement: Placement) -> set[tuple[PoolId, GangUid]]:
    """Return the pools of the devices that a gang holds, each with the gang."""
    held = (one.device for holding in placement.holdings.values() for one in holding.devices)
    return {((device.driver, device.pool), placement.gang_uid) for device in held}


def _payers(gang: GangUid, book: Book, previous: Mapping[GangUid, Placement]) -> Iterator[GangUid]:
    """Yield the gangs charged for claims that the pods of another gang use, or used before."""
    for placement in (book.placements.get(gang), previous.get(gang)):
        for seat in placement.seats.values() if placement is not None else ():
            for uid in seat.claims:
                payer = book.owners.get(Uid(uid))
                if payer is not None and payer != gang:
                    yield payer
