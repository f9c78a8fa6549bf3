"""What would be: the cluster state without some who use it, and with others in it whose claims wait still."""

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

    claims: `namespace/name` of those that give their devices back, and their UIDs as cluster states know them. pods:
    that use claims. room: the requests of each pod, on its node.
    """

    claims: frozenset[str] = frozenset()
    uids: frozenset[Uid] = frozenset()
    pods: frozenset[Uid] = frozenset()
    room: tuple[tuple[NodeName, Resources], ...] = ()


def without(cluster: ClusterState, *, keep: Collection[DeviceId] = ()) -> ClusterState:
    """Return the same cluster with nothing in use but the devices to keep."""
    return replace(
        cluster,
        is_simulated=True,
        taken={device: holder for device, holder in cluster.taken.items() if device in keep},
        shares={device: shares for device, shares in cluster.shares.items() if device in keep},
        left={name: node.allocatable for name, node in cluster.nodes.items()},
    )


def without_devices(cluster: ClusterState, removed: Iterable[Belongings]) -> ClusterState:
    """Return the cluster state in which some have given everything back."""
    parts = [*removed]
    if not parts:
        return cluster
    claims = frozenset[str]().union(*(one.claims for one in parts))
    uids, pods = (
        frozenset[Uid]().union(*(one.uids for one in parts)),
        frozenset[Uid]().union(*(one.pods for one in parts)),
    )
    left = dict(cluster.left)
    for node, requests in (room for one in parts for room in one.room):
        before = left.get(node)
        if before is not None:
            left[node] = {name: amount + requests.get(name, 0) for name, amount in before.items()}
    return replace(
        _without_users(cluster, uids, pods),
        is_simulated=True,
        taken={device: holder for device, holder in cluster.taken.items() if holder.claim not in claims},
        shares={
            device: kept
            for device, shares in cluster.shares.items()
            if (kept := tuple(one for one in shares if one.holder.claim not in claims))
        },
        left=left,
    )


def with_devices(
    cluster: ClusterState,
    room: Iterable[tuple[NodeName, Resources]],
    given: Iterable[tuple[Holder, Iterable[DeviceUse]]],
) -> ClusterState:
    """Return the cluster state with more in use: room on nodes, and devices, by whom."""
    left = dict(cluster.left)
    for node, requests in room:
        before = left.get(node)
        if before is not None:
            left[node] = {name: amount - requests.get(name, 0) for name, amount in before.items()}
    taken, shares = dict(cluster.taken), dict(cluster.shares)
    pools: set[PoolId] = set()
    for holder, uses in given:
        for use in uses:
            device = use.device
            pools.add((device.driver, device.pool))
            if use.shared:
                shares[device] = (*shares.get(device, ()), Shared(use.share, holder))
            else:
                taken[device] = holder
    where = frozenset(
        name
        for name, node_inventory in cluster.node_inventories.items()
        if not pools.isdisjoint(node_inventory.relevant)
    )
    return cluster_state.with_usage(cluster, (taken, shares), left, where)


def _without_users(cluster: ClusterState, uids: frozenset[Uid], pods: frozenset[Uid]) -> ClusterState:
    """Return the cluster state in which nobody waits for these claims, and these pods use none."""
    return replace(
        cluster,
        pinned={uid: nodes for uid, nodes in cluster.pinned.items() if uid not in uids},
        users={uid: left for uid, users in cluster.users.items() if (left := users.difference(pods))},
        conflicted=tuple(one for one in cluster.conflicted if cluster_state.key_of(one.claim) not in uids),
        pending={
            node: kept
            for node, waiting in cluster.pending.items()
            if (kept := tuple(one for one in waiting if uids.isdisjoint(map(cluster_state.key_of, one.claims))))
        },
    )
