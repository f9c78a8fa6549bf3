"""The allocated devices, each with its node, the pod that uses it, and the gang and queue that pay for it."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import Device, DeviceId, Slice
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Snapshot, changed
from admission.api.values.names import GangUid, QueueName, Uid
from admission.dra.metering import device_meters
from admission.incremental import Inverted
from admission.quota.tree import Tree
from admission.status import device_uuids

_PoolId = tuple[str, str]


class DeviceAllocation(NamedTuple):
    """One device that one claim has; all texts are empty where they are unknown.

    node: that has the device, or else that of the pod. device_class: of the request. uuid: the identifying attribute.
    pod: `name` of the only pod that uses the claim; empty for several. gang: its name, in the claim's namespace.
    workload: `Kind/name` of what makes the gang's pods. queue_path: the queue with those above it, from the root:
    `research/vision`. user: who created the workload, as the webhook recorded it.
    """

    driver: str
    pool: str
    device: str
    node: str
    device_class: str
    uuid: str
    namespace: str
    claim: str
    pod: str
    gang: str
    workload: str
    queue: str
    queue_path: str
    user: str


AllocationsByClaim = Mapping[str, tuple[DeviceAllocation, ...]]
"""By claim, `namespace/name`. A claim whose devices did not change has the same tuple as before."""


class DeviceAllocations:
    """The allocated devices in successive snapshots. Only claims of which something changed are looked at again.

    One per leader. Rule: `update`, called once in a cycle, alone changes it. attributes: by driver, the attribute that
    identifies its devices. A value depends on its claim, the slices of its pools, its pods, and the placement, Gang and
    queue that pay for it; so the dependencies are tracked by hand.
    """

    def __init__(self, attributes: Mapping[str, str] | None = None) -> None:
        self._attributes = attributes or {}
        self._snapshot = Snapshot()
        self._placements: Mapping[GangUid, Placement] = {}
        self._paths: dict[QueueName, str] = {}
        self._tree = Tree()
        self._users: Inverted[Claim, Uid, str] = Inverted(_users)
        """By pod, the claims that are reserved for it."""
        self._pools: Inverted[Claim, _PoolId, str] = Inverted(_pools)
        """By pool, the claims that have devices of it."""
        self._payers: Inverted[Placement, Uid, GangUid] = Inverted(_paid)
        """By pod or claim, the gang in whose placement it is."""
        self._gangs: Inverted[Placement, str, GangUid] = Inverted(_named)
        """By `namespace/name` of a gang, its placement."""
        self._slices: Inverted[Slice, _PoolId, str] = Inverted(_members)
        """By pool, its slices."""
        self._devices: dict[_PoolId, dict[str, tuple[Device, Slice]]] = {}
        self.by_claim: AllocationsByClaim = {}

    def update(self, snapshot: Snapshot, placements: Mapping[GangUid, Placement], tree: Tree) -> AllocationsByClaim:
        """Return the devices of every allocated claim. It is another mapping only if one of them changed."""
        before, self._snapshot = self._snapshot, snapshot
        keys = dict.fromkeys(changed(before.claims, snapshot.claims))
        keys |= self._of_pods(changed(before.pods, snapshot.pods))
        keys |= self._of_slices(before, snapshot)
        keys |= self._of_placements(before, snapshot, placements)
        self._users.update(snapshot.claims)
        self._pools.update(snapshot.claims)
        if self._follow(tree):
            keys = dict.fromkeys([*self.by_claim, *keys])
        made = {key: self._made(snapshot.claims.get(key)) for key in keys}
        differing = {key: now for key, now in made.items() if now != self.by_claim.get(key, ())}
        if differing:
            found = dict(self.by_claim)
            for key, now in differing.items():
                if now:
                    found[key] = now
                else:
                    del found[key]
            self.by_claim = found
        return self.by_claim

    # What depends on what changed. Claims themselves are followed last: new ones are looked at anyway.

    def _of_pods(self, uids: Iterable[Uid]) -> dict[str, None]:
        return {key: None for uid in uids for key in self._users.members.get(uid, ())}

    def _of_slices(self, before: Snapshot, snapshot: Snapshot) -> dict[str, None]:
        found: dict[str, None] = {}
        for key in changed(before.slices, snapshot.slices):
            for slice_ in filter(None, (before.slices.get(key), snapshot.slices.get(key))):
                pool = slice_.driver, slice_.pool
                self._devices.pop(pool, None)
                found |= dict.fromkeys(self._pools.members.get(pool, ()))
        self._slices.update(snapshot.slices)
        return found

    def _of_placements(
        self, before: Snapshot, snapshot: Snapshot, placements: Mapping[GangUid, Placement]
    ) -> dict[str, None]:
        uids = dict.fromkeys(changed(self._placements, placements))
        for key in changed(before.gangs, snapshot.gangs):
            uids |= dict.fromkeys(self._gangs.members.get(key, ()))
        found: dict[str, None] = {}
        for uid in uids:
            for placement in filter(None, (self._placements.get(uid), placements.get(uid))):
                found |= dict.fromkeys(holding.claim for holding in placement.holdings.values())
                found |= self._of_pods(placement.seats)
        self._placements = placements
        self._payers.update(placements)
        self._gangs.update(placements)
        return found

    def _follow(self, tree: Tree) -> bool:
        """Follow the queue tree; return whether the path of a queue changed."""
        if tree is self._tree:
            return False
        paths = {queue: "/".join(reversed(tree.path(queue))) for queue in tree.order}
        is_other, self._tree, self._paths = paths != self._paths, tree, paths
        return is_other

    # One claim.

    def _made(self, claim: Claim | None) -> tuple[DeviceAllocation, ...]:
        if claim is None or claim.allocation is None:
            return ()
        pods = [pod for uid in claim.reserved_for if (pod := self._snapshot.pods.get(Uid(uid))) is not None]
        placement = self._payer(claim, pods)
        gang = placement.gang if placement is not None else ""
        record = self._snapshot.gangs.get(gang)
        workload = record.workload if record is not None else None
        queue = placement.queue if placement is not None else QueueName("")
        options = device_meters.options_of(claim.spec)
        found: dict[DeviceAllocation, None] = {}
        # Admin access takes nothing. A claim may have several shares of one device, which are one series.
        for one in claim.allocation.devices:
            if one.admin_access:
                continue
            option, (node, uuid) = options.get(one.given.request), self._identity(one.device)
            row = DeviceAllocation(
                *one.device,
                node=node or next((pod.node for pod in pods if pod.node), ""),
                device_class=option.device_class if option is not None else "",
                uuid=uuid,
                namespace=claim.meta.namespace,
                claim=claim.meta.name,
                pod=pods[0].meta.name if len(pods) == 1 else "",
                gang=gang.partition("/")[2],
                workload=f"{workload.kind}/{workload.name}" if workload is not None else "",
                queue=queue,
                queue_path=self._paths.get(queue, queue),
                user=placement.user if placement is not None else "",
            )
            found[row] = None
        return tuple(found)

    def _payer(self, claim: Claim, pods: Iterable[Pod]) -> Placement | None:
        """Return the placement with the claim. A claim for extended resources is in the ledger by its pod alone."""
        for uid in (claim.meta.uid, *(pod.meta.uid for pod in pods)):
            gangs = self._payers.members.get(uid)
            if gangs:
                return self._placements[min(gangs)]
        return None

    def _identity(self, device: DeviceId) -> tuple[str, str]:
        """Return the node that has a device, if only one has it, and the value of its identifying attribute."""
        pool = device.driver, device.pool
        if pool not in self._devices:
            slices = (self._snapshot.slices[key] for key in self._slices.members.get(pool, ()))
            # Of two generations the newer counts.
            self._devices[pool] = {
                one.name: (one, slice_)
                for slice_ in sorted(slices, key=lambda slice_: slice_.generation)
                for one in slice_.devices
            }
        found = self._devices[pool].get(device.device)
        if found is None:
            return "", ""
        described, slice_ = found
        uuid = device_uuids.uuid_of(device.driver, described, self._attributes)
        return slice_.node_name or described.node_name, uuid


def _users(claim: Claim) -> Iterator[tuple[Uid, str]]:
    return ((Uid(uid), claim.meta.key) for uid in (claim.reserved_for if claim.allocation is not None else ()))


def _pools(claim: Claim) -> Iterator[tuple[_PoolId, str]]:
    devices = claim.allocation.devices if claim.allocation is not None else ()
    return (((one.device.driver, one.device.pool), claim.meta.key) for one in devices)


def _paid(placement: Placement) -> Iterator[tuple[Uid, GangUid]]:
    return ((uid, placement.gang_uid) for uid in (*placement.seats, *placement.holdings))


def _named(placement: Placement) -> Iterator[tuple[str, GangUid]]:
    yield placement.gang, placement.gang_uid


def _members(slice_: Slice) -> Iterator[tuple[_PoolId, str]]:
    yield (slice_.driver, slice_.pool), slice_.meta.key
