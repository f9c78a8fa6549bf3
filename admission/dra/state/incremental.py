"""What claims, pods and placements come to, kept from state to state, so that only what changed is counted again.

A cluster state is made again for every claim and pod that changes, from tens of thousands that did not. What changed is
found by the identity of the objects, which never change themselves.
"""

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId
from admission.api.kubernetes.nodes import Node, Resources
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Snapshot, changed
from admission.api.values import names
from admission.api.values.names import GangUid, NodeName, Uid
from admission.dra.compatibility import Features
from admission.dra.requests import device_use
from admission.dra.requests.device_use import DeviceUse, Holder, Shared


class Users:
    """The pods with a seat that use a claim, as the books were the last time."""

    def __init__(self) -> None:
        self._placements: Mapping[GangUid, Placement] = {}
        self._seats: dict[Uid, dict[tuple[GangUid, Uid], None]] = {}
        """By the UIDs of claims, the seats, by gang and pod."""
        self._users: Mapping[Uid, frozenset[Uid]] = {}

    def update(self, placements: Mapping[GangUid, Placement]) -> Mapping[Uid, frozenset[Uid]]:
        """Return the users of every claim, by its UID; of a claim that has the same ones as before the same object."""
        gangs, before, self._placements = changed(self._placements, placements), self._placements, placements
        uids: set[Uid] = set()
        for gang, pod, uid in _uses(before[gang] for gang in gangs if gang in before):
            self._seats[uid].pop((gang, pod), None)
            uids.add(uid)
        for gang, pod, uid in _uses(placements[gang] for gang in gangs if gang in placements):
            self._seats.setdefault(uid, {})[gang, pod] = None
            uids.add(uid)
        if uids:
            users = dict(self._users)
            for uid in uids:
                users[uid] = _same(users.get(uid), [pod for _, pod in self._seats[uid]])
                if not users[uid]:
                    del users[uid], self._seats[uid]
            self._users = users
        return self._users


def _uses(placements: Iterable[Placement]) -> Iterator[tuple[GangUid, Uid, Uid]]:
    """Yield gang, pod and claim wherever a pod with a seat uses a claim."""
    for placement in placements:
        for seat in placement.seats.values():
            for uid in seat.claims:
                yield placement.gang_uid, seat.pod_uid, uid


def _same(known: frozenset[Uid] | None, pods: Sequence[Uid]) -> frozenset[Uid]:
    """Return the pods as a set; that of before, where it is the same."""
    found = frozenset(pods)
    return known if known is not None and known == found else found


_Left = Mapping[str, int] | None


class UsageTotals(NamedTuple):
    """What a cluster state is made of. None of it changes any more; what is as it was is the same object.

    taken and shares: devices of allocated claims. left: what is left of each node's allocatable resources beside bound,
    unfinished pods, and granted pods that are not bound yet. users: of every claim, by its UID, the pods that have a
    seat and use it. unseen: the placements with a claim that is not seen allocated. devices and nodes: those of which
    anything of this may be otherwise than when it was counted before; None for all. follows: the token of the cluster
    state that was made of what was counted before, if it was.
    """

    taken: Mapping[DeviceId, Holder]
    shares: Mapping[DeviceId, Sequence[Shared]]
    left: Mapping[NodeName, _Left]
    users: Mapping[Uid, frozenset[Uid]]
    unseen: Sequence[Placement]
    devices: Collection[DeviceId] | None
    nodes: Collection[NodeName]
    follows: object


class _Allocated(NamedTuple):
    """A claim that is allocated, and what it takes."""

    claim: Claim
    uses: tuple[DeviceUse, ...]
    holder: Holder


class _Changes(NamedTuple):
    """The placements that came, went or were replaced, as they were and as they are."""

    gangs: Sequence[GangUid]
    before: Sequence[Placement]
    now: Sequence[Placement]


class _ClaimPayers:
    """Who pays for claims, and which of those are seen allocated."""

    def __init__(self) -> None:
        self._held: dict[Uid, Placement] = {}
        """The placement that pays for a claim, by what the books call the claim."""
        self._extended: dict[Uid, GangUid] = {}
        """Those of claims that go by their pods in the books: which claims these are may change with any claim."""
        self.payers: dict[Uid, str] = {}
        """The gangs that pay for claims, by the UIDs of the claims."""
        self._extended_payers: dict[Uid, str] = {}
        """Those of claims that go by their pods."""
        self._to_check: set[GangUid] = set()
        self._unseen: set[GangUid] = set()

    def refresh(self, changes: _Changes, renewed: Iterable[Claim], by_uid: Mapping[Uid, Claim]) -> set[str]:
        """Return the names of the claims for which another client pays now."""
        uids = {uid for placement in (*changes.before, *changes.now) for uid in placement.holdings}
        for placement in changes.before:
            for uid in placement.holdings:
                self._held.pop(uid, None)
                self._extended.pop(uid, None)
        for placement in changes.now:
            for uid in placement.holdings:
                self._held[uid] = placement
                if names.is_extended_claim(uid):
                    self._extended[uid] = placement.gang_uid
        self._to_check.update(changes.gangs, self._extended.values())
        uids.update(claim.meta.uid for claim in renewed)
        for claim in renewed:
            payer = self._held.get(claim.meta.uid)
            if payer is not None:
                self._to_check.add(payer.gang_uid)
        extended = {by_uid[uid].meta.uid: self._held[uid].gang for uid in self._extended if uid in by_uid}
        uids.update(self._extended_payers, extended)
        before = {uid: self.payers.pop(uid) for uid in uids if uid in self.payers}
        after = {uid: self._held[uid].gang for uid in uids if uid in self._held and uid in by_uid} | extended
        self._extended_payers = extended
        self.payers |= after
        changed_uids = {uid for uid in before.keys() | after.keys() if before.get(uid) != after.get(uid)}
        return {by_uid[uid].meta.key for uid in changed_uids if uid in by_uid}

    def unseen(self, placements: Mapping[GangUid, Placement], by_uid: Mapping[Uid, Claim]) -> list[Placement]:
        """Return the placements with a claim that is not seen allocated, in their order."""
        for gang in self._to_check:
            placement = placements.get(gang)
            if placement is None or all(_is_allocated(by_uid.get(uid)) for uid in placement.holdings):
                self._unseen.discard(gang)
            else:
                self._unseen.add(gang)
        self._to_check.clear()
        return [placement for gang, placement in placements.items() if gang in self._unseen] if self._unseen else []


class _Devices:
    """The devices of allocated claims."""

    def __init__(self) -> None:
        self._allocated: dict[str, _Allocated] = {}
        self._taken: dict[DeviceId, Holder] = {}
        self._is_plain = True
        """Whether no device is shared, or in use twice: then what one claim takes can be counted for itself."""
        self._features: Features | None = None
        self.moved: set[DeviceId] | None = None
        """The devices of which the use may be another one than before; None for all."""

    def refresh(
        self, claims: Mapping[str, Claim], keys: Iterable[str], payers: Mapping[Uid, str], features: Features
    ) -> tuple[Mapping[DeviceId, Holder], Mapping[DeviceId, Sequence[Shared]]]:
        """Return what is taken, and what is shared. keys: of the claims that changed, or for which others pay."""
        if features != self._features:
            self._allocated.clear()
            self._taken, self._is_plain, self._features, keys = {}, True, features, claims
        new: list[_Allocated] = []
        taken = dict(self._taken)
        was_plain, moved = self._is_plain, set[DeviceId]()
        for key in keys:
            old, claim = self._allocated.pop(key, None), claims.get(key)
            for use in old.uses if old is not None and self._is_plain else ():
                del taken[use.device]
                moved.add(use.device)
            if claim is None or claim.allocation is None:
                continue
            is_same = old is not None and old.claim is claim
            given = old.uses if old is not None and is_same else device_use.from_allocation(claim.allocation, features)
            holder = Holder(claim=claim.meta.key, gang=payers.get(claim.meta.uid, ""))
            self._allocated[key] = one = _Allocated(claim, tuple(given), holder)
            new.append(one)
        for one in new:
            for use in one.uses:
                self._is_plain &= not use.shared and use.device not in taken
                taken[use.device] = one.holder
                moved.add(use.device)
        self.moved = moved if was_plain and self._is_plain else None
        if self._is_plain:
            self._taken = taken
            return taken, {}
        return self._recounted(claims)

    def _recounted(
        self, claims: Iterable[str]
    ) -> tuple[Mapping[DeviceId, Holder], Mapping[DeviceId, Sequence[Shared]]]:
        """Count everything, in the order of the claims, of which the last is right."""
        taken: dict[DeviceId, Holder] = {}
        shares: dict[DeviceId, list[Shared]] = {}
        self._is_plain = True
        for one in (self._allocated[key] for key in claims if key in self._allocated):
            for use in one.uses:
                self._is_plain &= not use.shared and use.device not in taken
                if use.shared:
                    shares.setdefault(use.device, []).append(Shared(use.share, one.holder))
                else:
                    taken[use.device] = one.holder
        self._taken = taken
        return taken, shares


class _NodeCapacities:
    """What pods leave of nodes."""

    def __init__(self) -> None:
        self._nodes: Mapping[NodeName, Node] = {}
        self._pods: Mapping[Uid, Pod] = {}
        self._seats: dict[Uid, dict[GangUid, NodeName]] = {}
        """The nodes on which pods were granted a place."""
        self._places: dict[Uid, tuple[NodeName, ...]] = {}
        """Where pods count."""
        self._there: dict[NodeName, dict[Uid, int]] = {}
        """How often each pod counts on a node."""
        self._left: Mapping[NodeName, _Left] = {}
        self.moved: set[NodeName] = set()
        """The nodes of which what is left may be something else than before."""

    def refresh(
        self, nodes: Mapping[NodeName, Node], pods: Mapping[Uid, Pod], changes: _Changes
    ) -> Mapping[NodeName, _Left]:
        """Return what is left of every node."""
        moved = {*changed(self._pods, pods), *self._update_seats(changes)}
        dirty = {*changed(self._nodes, nodes)}
        for uid in moved:
            dirty.update(self._move(uid, pods.get(uid)))
        self._nodes, self._pods, self.moved = nodes, pods, dirty
        if dirty:
            again = {name: self._room(nodes[name]) for name in nodes if name in dirty}
            self._left = {name: again[name] if name in again else self._left[name] for name in nodes}
        return self._left

    def _update_seats(self, changes: _Changes) -> Iterator[Uid]:
        for placement in changes.before:
            for uid in _pods_of(placement):
                self._seats[uid].pop(placement.gang_uid, None)
                if not self._seats[uid]:
                    del self._seats[uid]
                yield uid
        for placement in changes.now:
            for seat in placement.seats.values():
                self._seats.setdefault(seat.pod_uid, {})[placement.gang_uid] = seat.node
                yield seat.pod_uid

    def _move(self, uid: Uid, pod: Pod | None) -> tuple[NodeName, ...]:
        """Count a pod where it is now; return all nodes of which that changes anything."""
        places: tuple[NodeName, ...] = ()
        if pod is not None and not pod.finished:
            places = (pod.node,) if pod.node else tuple(self._seats.get(uid, {}).values())
        before = self._places.pop(uid, ())
        for node in before:
            self._there[node].pop(uid, None)
        for node in places:
            there = self._there.setdefault(node, {})
            there[uid] = there.get(uid, 0) + 1
        if places:
            self._places[uid] = places
        return (*before, *places)

    def _room(self, node: Node) -> _Left:
        left: _Left = node.allocatable
        for uid, times in self._there.get(node.name, {}).items():
            for _ in range(times):
                left = less(left, self._pods[uid].requests)
        return left


@dataclass(slots=True, eq=False)
class IncrementalUsage:
    """What was counted for the last cluster state of a profile. Not for two threads at once."""

    _placements: Mapping[GangUid, Placement] = field(default_factory=dict)
    _claims: Mapping[str, Claim] = field(default_factory=dict)
    _seen: _ClaimPayers = field(default_factory=_ClaimPayers)
    _devices: _Devices = field(default_factory=_Devices)
    _bounds: _NodeCapacities = field(default_factory=_NodeCapacities)
    _users: Users = field(default_factory=Users)
    counted_for: object = None
    """The token of the cluster state that was made of it."""
    planned: Collection[DeviceId] = ()
    """The devices that are in use in that cluster state beside it."""

    def count(
        self, snapshot: Snapshot, placements: Sequence[Placement], by_uid: Mapping[Uid, Claim], features: Features
    ) -> UsageTotals:
        """Count what a snapshot and the placements come to. by_uid: `extended.index_claims` of the snapshot."""
        try:
            return self._counted(snapshot, placements, by_uid, features)
        except BaseException:
            # What is half counted is no ground to count on.
            self._forget()
            raise

    def _forget(self) -> None:
        self._placements, self._claims, self.counted_for = {}, {}, None
        self._seen, self._devices, self._bounds, self._users = _ClaimPayers(), _Devices(), _NodeCapacities(), Users()

    def _counted(
        self, snapshot: Snapshot, placements: Sequence[Placement], by_uid: Mapping[Uid, Claim], features: Features
    ) -> UsageTotals:
        follows, self.counted_for = self.counted_for, None
        by_gang = {placement.gang_uid: placement for placement in placements}
        gangs = changed(self._placements, by_gang)
        changes = _Changes(
            gangs,
            before=[self._placements[gang] for gang in gangs if gang in self._placements],
            now=[by_gang[gang] for gang in gangs if gang in by_gang],
        )
        keys = changed(self._claims, snapshot.claims)
        renewed = [claims[key] for key in keys for claims in (self._claims, snapshot.claims) if key in claims]
        self._placements, self._claims = by_gang, snapshot.claims
        concerned = self._seen.refresh(changes, renewed, by_uid)
        taken, shares = self._devices.refresh(snapshot.claims, {*keys, *concerned}, self._seen.payers, features)
        left = self._bounds.refresh(snapshot.nodes, snapshot.pods, changes)
        return UsageTotals(
            taken=taken,
            shares=shares,
            left=left,
            users=self._users.update(by_gang),
            unseen=self._seen.unseen(by_gang, by_uid),
            devices=self._devices.moved,
            nodes=self._bounds.moved,
            follows=follows,
        )


def less(left: _Left, requests: Resources) -> _Left:
    """Return what is left of a node's resources beside a pod."""
    if left is None:
        return None
    return {resource: amount - requests.get(resource, 0) for resource, amount in left.items()}


def are_same(one: Sequence[object], other: Sequence[object]) -> bool:
    """Return whether these are the same objects."""
    return len(one) == len(other) and all(map(operator.is_, one, other))


def _pods_of(placement: Placement) -> set[Uid]:
    return {seat.pod_uid for seat in placement.seats.values()}


def _is_allocated(claim: Claim | None) -> bool:
    return claim is not None and claim.allocation is not None
