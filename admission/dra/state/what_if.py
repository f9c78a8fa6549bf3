"""What would be: the world without some who use it, and with others in it whose claims wait still."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from admission.api.kubernetes.devices import DeviceId
from admission.api.kubernetes.nodes import Resources
from admission.api.values.names import NodeName, Uid
from admission.dra.inventory.pools import PoolId
from admission.dra.requests.device_use import DeviceUse, Holder, Shared
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True, kw_only=True)
class Belongings:
    """What is free once a gang has gone.

    claims: `namespace/name` of those that give their devices back, and their UIDs as worlds know them. pods: that use
    claims. room: the requests of each pod, on its node.
    """

    claims: frozenset[str] = frozenset()
    uids: frozenset[Uid] = frozenset()
    pods: frozenset[Uid] = frozenset()
    room: tuple[tuple[NodeName, Resources], ...] = ()


def without(world: ClusterState, *, keep: Collection[DeviceId] = ()) -> ClusterState:
    """Return the same cluster with nothing in use but the devices to keep."""
    return replace(
        world,
        imagined=True,
        taken={device: holder for device, holder in world.taken.items() if device in keep},
        shares={device: shares for device, shares in world.shares.items() if device in keep},
        left={name: node.allocatable for name, node in world.nodes.items()},
    )


def without_devices(world: ClusterState, gone: Iterable[Belongings]) -> ClusterState:
    """Return the world in which some have given everything back."""
    parts = [*gone]
    if not parts:
        return world
    claims = frozenset[str]().union(*(one.claims for one in parts))
    uids, pods = (
        frozenset[Uid]().union(*(one.uids for one in parts)),
        frozenset[Uid]().union(*(one.pods for one in parts)),
    )
    left = dict(world.left)
    for node, requests in (room for one in parts for room in one.room):
        before = left.get(node)
        if before is not None:
            left[node] = {name: amount + requests.get(name, 0) for name, amount in before.items()}
    return replace(
        _without_users(world, uids, pods),
        imagined=True,
        taken={device: holder for device, holder in world.taken.items() if holder.claim not in claims},
        shares={
            device: kept
            for device, shares in world.shares.items()
            if (kept := tuple(one for one in shares if one.holder.claim not in claims))
        },
        left=left,
    )


def with_devices(
    world: ClusterState, room: Iterable[tuple[NodeName, Resources]], given: Iterable[tuple[Holder, Iterable[DeviceUse]]]
) -> ClusterState:
    """Return the world with more in use: room on nodes, and devices, by whom."""
    left = dict(world.left)
    for node, requests in room:
        before = left.get(node)
        if before is not None:
            left[node] = {name: amount - requests.get(name, 0) for name, amount in before.items()}
    taken, shares = dict(world.taken), dict(world.shares)
    pools: set[PoolId] = set()
    for holder, takings in given:
        for taking in takings:
            device = taking.device
            pools.add((device.driver, device.pool))
            if taking.shared:
                shares[device] = (*shares.get(device, ()), Shared(taking.share, holder))
            else:
                taken[device] = holder
    where = frozenset(name for name, shelf in world.shelves.items() if not pools.isdisjoint(shelf.relevant))
    return cluster_state.using(world, (taken, shares), left, where)


def _without_users(world: ClusterState, uids: frozenset[Uid], pods: frozenset[Uid]) -> ClusterState:
    """Return the world in which nobody waits for these claims, and these pods use none."""
    return replace(
        world,
        pinned={uid: nodes for uid, nodes in world.pinned.items() if uid not in uids},
        users={uid: left for uid, users in world.users.items() if (left := users.difference(pods))},
        displaced=tuple(one for one in world.displaced if cluster_state.key_of(one.claim) not in uids),
        awaited={
            node: kept
            for node, waiting in world.awaited.items()
            if (kept := tuple(one for one in waiting if uids.isdisjoint(map(cluster_state.key_of, one.claims))))
        },
    )
