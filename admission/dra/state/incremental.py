"""The usage by claims, pods and placements, kept between cluster states so that only what changed is counted again.

A cluster state is built after every change of a claim or pod, while tens of thousands are unchanged. Changes are found
by the identity of the objects, which are immutable.

The users of claims and the device uses of allocations are declarations over `admission.incremental`. Payers, devices in
use and resources left are sums over several mappings at once (claims, placements, pods, nodes), whose terms come and go
one by one, so their dependencies are tracked by hand. The law is tested in `tests/property/test_cluster_state.py`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId
from admission.api.kubernetes.nodes import Node, Resources
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Snapshot, changed
from admission.api.values import names
from admission.api.values.names import GangUid, NodeName, Uid
from admission.dra.compatibility import Features, Release, SchedulerProfile
from admission.dra.requests import device_use
from admission.dra.requests.device_use import DeviceUse, Holder, Shared
from admission.filters.placed_pods import PlacedPod, PlacedPods
from admission.incremental import Derived, Inverted


def claim_users(placement: Placement) -> Iterator[tuple[Uid, Uid]]:
    """Yield the UIDs of claim and pod for every claim that a pod with a slot in the ledger uses."""
    for seat in placement.seats.values():
        for uid in seat.claims:
            yield uid, seat.pod_uid


_Left = Mapping[str, int] | None


class UsageTotals(NamedTuple):
    """The inputs of a cluster state. They are immutable; what did not change is the same object as before.

    taken and shares: devices of allocated claims. left: what is left of each node's allocatable resources beside bound,
    unfinished pods, and granted pods that are not bound yet. placed: these pods. users: by claim UID, the placed pods
    that use the claim. unseen: the placements with a claim not yet observed as allocated. devices and nodes: those
    whose usage may differ from the count before; None for all. follows: the token of the cluster state built from the
    count before, if any.
    """

    taken: Mapping[DeviceId, Holder]
    shares: Mapping[DeviceId, tuple[Shared, ...]]
    left: Mapping[NodeName, _Left]
    placed: PlacedPods
    users: Mapping[Uid, frozenset[Uid]]
    unseen: Sequence[Placement]
    devices: Collection[DeviceId] | None
    nodes: Collection[NodeName]
    follows: object


class _Allocated(NamedTuple):
    """The device uses of an allocated claim, and their holder."""

    uses: tuple[DeviceUse, ...]
    holder: Holder


class _Change(NamedTuple):
    """A claim whose allocation is another one."""

    key: str
    before: _Allocated | None
    now: _Allocated | None


class _Changes(NamedTuple):
    """The placements that were added, removed or replaced, before and now."""

    gangs: Sequence[GangUid]
    before: Sequence[Placement]
    now: Sequence[Placement]


class _ClaimPayers:
    """The gangs that pay for claims, and the placements whose claims are not all observed as allocated."""

    def __init__(self) -> None:
        self._held: dict[Uid, Placement] = {}
        """The placement that pays for a claim, by the claim's UID in the ledger."""
        self._extended: dict[Uid, GangUid] = {}
        """The gangs of claims for extended resources, which the ledger names by pod: any new claim may be one."""
        self.payers: dict[Uid, str] = {}
        """The gangs that pay for claims, by the claims' real UIDs."""
        self._extended_payers: dict[Uid, str] = {}
        """The part of `payers` for claims that the ledger names by pod."""
        self._to_check: set[GangUid] = set()
        self._unseen: set[GangUid] = set()

    def refresh(self, changes: _Changes, renewed: Iterable[Claim], by_uid: Mapping[Uid, Claim]) -> set[str]:
        """Return the keys of the claims whose paying gang has changed."""
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
        """Return the placements with a claim that is not observed as allocated, in their order."""
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

    def __init__(self, features: Features) -> None:
        self.features = features
        self._uses: Derived[str, Claim, tuple[DeviceUse, ...]] = Derived(self._device_uses)
        """The device uses of each allocated claim, by its key."""
        self._allocated: dict[str, _Allocated] = {}
        self._taken: Mapping[DeviceId, Holder] = MappingProxyType({})
        self._shares: Mapping[DeviceId, tuple[Shared, ...]] = {}
        self._is_plain = True
        """Whether no device is shared or in use twice: then each claim can be counted alone."""
        self.moved: set[DeviceId] | None = None
        """The devices whose use may have changed; None for all."""

    def update(self, claims: Mapping[str, Claim]) -> list[str]:
        """Follow the claims; return the keys of those that changed."""
        return self._uses.update(claims)

    def _device_uses(self, _: str, claim: Claim) -> tuple[DeviceUse, ...] | None:
        return None if claim.allocation is None else tuple(device_use.from_allocation(claim.allocation, self.features))

    def refresh(
        self, claims: Mapping[str, Claim], keys: Iterable[str], payers: Mapping[Uid, str]
    ) -> tuple[Mapping[DeviceId, Holder], Mapping[DeviceId, tuple[Shared, ...]]]:
        """Return what is taken, and what is shared: the same objects as before if no claim has other devices.

        claims: of the last `update`. keys: changed, or paid by another.
        """
        found = (_Change(key, self._allocated.get(key), self._allocation(key, claims, payers)) for key in keys)
        # Of devices in use twice the last claim is the holder, and a claim that was written may come later than before.
        changes = [one for one in found if one.before != one.now or not (self._is_plain or one.now is None)]
        self.moved = {use.device for one in changes for each in (one.before, one.now) if each for use in each.uses}
        if not changes:
            return self._taken, self._shares
        for key, _, now in changes:
            self._allocated.pop(key, None)
            if now is not None:
                self._allocated[key] = now
        taken = self._exchanged(changes) if self._is_plain else None
        shares: Mapping[DeviceId, tuple[Shared, ...]] = {}
        if taken is None:
            self.moved = None
            taken, shares = self._recounted(claims)
        self._taken, self._shares = MappingProxyType(taken), shares
        return self._taken, self._shares

    def _exchanged(self, changes: Iterable[_Change]) -> dict[DeviceId, Holder] | None:
        """Return what is taken after changes of plain claims; None if a device is shared now, or in use twice."""
        taken = dict(self._taken)
        for before in (one.before for one in changes if one.before is not None):
            for use in before.uses:
                del taken[use.device]
        for now in (one.now for one in changes if one.now is not None):
            for use in now.uses:
                if use.shared or use.device in taken:
                    return None
                taken[use.device] = now.holder
        return taken

    def _allocation(self, key: str, claims: Mapping[str, Claim], payers: Mapping[Uid, str]) -> _Allocated | None:
        """Return what a claim has; None for one that is not allocated, or gone."""
        uses = self._uses.values.get(key)
        if uses is None:
            return None
        meta = claims[key].meta
        return _Allocated(uses, Holder(claim=meta.key, gang=payers.get(meta.uid, "")))

    def _recounted(self, claims: Iterable[str]) -> tuple[dict[DeviceId, Holder], dict[DeviceId, tuple[Shared, ...]]]:
        """Count everything in the order of the claims; the last claim on a device is its holder."""
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
        return taken, {device: tuple(found) for device, found in shares.items()}


class _NodeCapacities:
    """The pods on nodes, and the resources that they leave there."""

    def __init__(self, release: Release = Release.V1_37) -> None:
        self._release = release
        self._nodes: Mapping[NodeName, Node] = {}
        self._pods: Mapping[Uid, Pod] = {}
        self._seats: dict[Uid, dict[GangUid, NodeName]] = {}
        """By pod, the nodes granted to it in the ledger, by gang."""
        self._places: dict[Uid, tuple[NodeName, ...]] = {}
        """By pod, the nodes on which its requests count."""
        self._there: dict[NodeName, dict[Uid, int]] = {}
        """By node, how often each pod counts there."""
        self._left: Mapping[NodeName, _Left] = {}
        self._turns: dict[Uid, int] = {}
        """By pod, its place in the order of granted seats."""
        self._next_turn = 0
        self._kept: dict[NodeName, dict[Uid, Pod]] = {}
        """By node, the pods for which kube-scheduler keeps it."""
        self._nominated: dict[Uid, NodeName] = {}
        """By pod, the node that is kept for it."""
        self.placed = PlacedPods()
        """The pods on nodes, as of the last `refresh`."""
        self.moved: set[NodeName] = set()
        """The nodes whose resources left may have changed."""

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
            self.placed = self.placed.changed(
                {name: there for name in dirty if (there := self._pods_on(name)) != self.placed.on(name)},
                self._next_turn,
            ).with_nominated(self._nominations(dirty))
        return self._left

    def _nominations(self, dirty: Iterable[NodeName]) -> Mapping[NodeName, tuple[Pod, ...]]:
        """Return the pods for which nodes are kept; the same object as before if nothing differs."""
        before = self.placed.nominated
        # In the order of UIDs, whichever came first.
        found = {name: tuple(there[uid] for uid in sorted(there)) for name in dirty if (there := self._kept.get(name))}
        found = {**{name: pods for name, pods in before.items() if name in self._kept}, **found}
        return before if found == before else found

    def _pods_on(self, node: NodeName) -> dict[Uid, PlacedPod]:
        """Return the pods of a node; one that has not changed is the same object as before."""
        before, found = self.placed.on(node), dict[Uid, PlacedPod]()
        for uid in self._there.get(node, ()):
            pod = PlacedPod.of(self._pods[uid], self._turns.get(uid))
            known = before.get(uid)
            found[uid] = known if known == pod else pod
        return found

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
                if seat.pod_uid not in self._turns:
                    self._turns[seat.pod_uid] = self._next_turn
                    self._next_turn += 1
                yield seat.pod_uid
        for uid in (uid for placement in changes.before for uid in _pods_of(placement)):
            if uid not in self._seats:
                self._turns.pop(uid, None)

    def _move(self, uid: Uid, pod: Pod | None) -> tuple[NodeName, ...]:
        """Count a pod where it is now; return the nodes where it counted before and where it counts now."""
        places: tuple[NodeName, ...] = ()
        if pod is not None and not pod.finished:
            places = (pod.node,) if pod.node else tuple(self._seats.get(uid, {}).values())
        kept = tuple(self._nominate(uid, pod if not any(places) else None))
        before = self._places.pop(uid, ())
        for node in before:
            self._there[node].pop(uid, None)
        for node in places:
            there = self._there.setdefault(node, {})
            there[uid] = there.get(uid, 0) + 1
        if places:
            self._places[uid] = places
        return (*before, *places, *kept)

    def _nominate(self, uid: Uid, pod: Pod | None) -> Iterator[NodeName]:
        """Note the node that is kept for a pod which is on none; yield the one before and the one now."""
        before = self._nominated.pop(uid, None)
        if before is not None:
            del self._kept[before][uid]
            if not self._kept[before]:
                del self._kept[before]
            yield before
        if pod is not None and pod.nominated and not pod.gates and not pod.finished:
            self._nominated[uid] = pod.nominated
            self._kept.setdefault(pod.nominated, {})[uid] = pod
            yield pod.nominated

    def _room(self, node: Node) -> _Left:
        left: _Left = node.allocatable
        for uid, times in self._there.get(node.name, {}).items():
            for _ in range(times):
                pod = self._pods[uid]
                left = less(left, pod.counted_by_1_36 if self._release.before_1_37 else pod.counted)
        return left


@dataclass(slots=True, eq=False)
class IncrementalUsage:
    """The counts for the last cluster state of a profile. Not thread-safe.

    Rule: `count` alone changes the counts; `cluster_state.build`, which calls it, records for which state they are.
    """

    _placements: Mapping[GangUid, Placement] = field(default_factory=dict)
    _claims: Mapping[str, Claim] = field(default_factory=dict)
    _seen: _ClaimPayers = field(default_factory=_ClaimPayers)
    _devices: _Devices | None = None
    _bounds: _NodeCapacities = field(default_factory=_NodeCapacities)
    _users: Inverted[Placement, Uid, Uid] = field(default_factory=lambda: Inverted(claim_users))
    counted_for: object = None
    """The token of the cluster state that was built from the counts."""
    planned: Collection[DeviceId] = ()
    """The devices in use in that cluster state in addition to the counts."""
    by_devices: Mapping[NodeName, Resources] = field(default_factory=dict)
    """What planned devices take of nodes in that cluster state in addition to the counts."""

    def count(
        self,
        snapshot: Snapshot,
        placements: Sequence[Placement],
        by_uid: Mapping[Uid, Claim],
        profile: SchedulerProfile,
    ) -> UsageTotals:
        """Count the usage in a snapshot and placements. by_uid: `extended_resources.index_claims` of the snapshot."""
        try:
            return self._counted(snapshot, placements, by_uid, profile)
        except BaseException:
            # A partial count cannot be continued: the next one starts from nothing.
            self._forget()
            raise

    def _forget(self) -> None:
        self._placements, self._claims, self.counted_for = {}, {}, None
        self._seen, self._devices, self._bounds = _ClaimPayers(), None, _NodeCapacities()
        self._users = Inverted(claim_users)

    def _counted(
        self,
        snapshot: Snapshot,
        placements: Sequence[Placement],
        by_uid: Mapping[Uid, Claim],
        profile: SchedulerProfile,
    ) -> UsageTotals:
        if self._devices is None or self._devices.features != profile.features:
            # Under other features the same claims use other devices: nothing that was counted holds.
            self._forget()
            self._devices, self._bounds = _Devices(profile.features), _NodeCapacities(profile.release)
        follows, self.counted_for = self.counted_for, None
        by_gang = {placement.gang_uid: placement for placement in placements}
        gangs = changed(self._placements, by_gang)
        changes = _Changes(
            gangs,
            before=[self._placements[gang] for gang in gangs if gang in self._placements],
            now=[placement for gang, placement in by_gang.items() if gang in gangs],
        )
        keys = self._devices.update(snapshot.claims)
        renewed = [claims[key] for key in keys for claims in (self._claims, snapshot.claims) if key in claims]
        self._placements, self._claims = by_gang, snapshot.claims
        concerned = self._seen.refresh(changes, renewed, by_uid)
        taken, shares = self._devices.refresh(snapshot.claims, {*keys, *concerned}, self._seen.payers)
        left = self._bounds.refresh(snapshot.nodes, snapshot.pods, changes)
        self._bounds.placed = self._bounds.placed.within(snapshot.namespaces).stored(snapshot.storage)
        return UsageTotals(
            taken=taken,
            shares=shares,
            left=left,
            placed=self._bounds.placed,
            users=self._users.update(by_gang),
            unseen=self._seen.unseen(by_gang, by_uid),
            devices=self._devices.moved,
            nodes=self._bounds.moved,
            follows=follows,
        )


def less(left: _Left, requests: Resources) -> _Left:
    """Return what is left of a node's resources after a pod's requests."""
    if left is None:
        return None
    return {resource: amount - requests.get(resource, 0) for resource, amount in left.items()}


def _pods_of(placement: Placement) -> set[Uid]:
    return {seat.pod_uid for seat in placement.seats.values()}


def _is_allocated(claim: Claim | None) -> bool:
    return claim is not None and claim.allocation is not None
