"""The cluster state of a simulated cluster, in which gangs take and give back devices and node resources.

For `muster simulate --arrivals`, where every change is known. The state equals the one that `cluster_state.build` makes
of a snapshot in which all claims are allocated and all pods bound.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from admission.api.kubernetes.device_taint_rules import TaintRule
from admission.api.kubernetes.devices import DeviceId, Slice
from admission.api.kubernetes.nodes import Node, Resources
from admission.api.snapshot import changed
from admission.api.values.names import NodeName
from admission.dra.inventory import device_taints, node_index
from admission.dra.inventory.node_index import NodeIndex
from admission.dra.inventory.pools import PoolId, Slices
from admission.dra.requests.device_use import DeviceUse, Holder, Shared
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningGang:
    """What a gang uses while it runs: the devices of its claims, and the requests of each of its pods."""

    uses: tuple[tuple[Holder, tuple[DeviceUse, ...]], ...] = ()
    requests: tuple[tuple[NodeName, Resources], ...] = ()

    @property
    def devices(self) -> int:
        """Return how many devices it uses; a share counts as one."""
        return sum(len(taken) for _, taken in self.uses)


@dataclass(slots=True)
class VirtualCluster:
    """Builds successive cluster states, each from the one before.

    The states share their mappings of usage, so that a change costs no more than what changes. So only the last state
    may be read. Of earlier states only `cluster_state.changed` may be asked, which reads their change log.
    """

    cluster: ClusterState
    _taken: dict[DeviceId, Holder] = field(init=False)
    _shares: dict[DeviceId, tuple[Shared, ...]] = field(init=False)
    _left: dict[NodeName, Mapping[str, int] | None] = field(init=False)
    _seers: Mapping[PoolId, tuple[NodeName, ...]] = field(init=False)
    """The nodes that see the devices of each pool."""

    def __post_init__(self) -> None:
        cluster = self.cluster
        self._taken, self._shares, self._left = dict(cluster.taken), dict(cluster.shares), dict(cluster.left)
        self._seers = _seers(cluster)

    def change_nodes(
        self, nodes: Mapping[NodeName, Node], slices: Mapping[str, Slice], rules: Mapping[str, TaintRule]
    ) -> None:
        """Have exactly these nodes and slices. New nodes are empty, and nothing may be in use on those that go."""
        before, left = self.cluster, self._left
        tainted = device_taints.apply_rules(slices, rules, before.profile.release, before.tainted)
        pieces = Slices(tainted.slices, before.profile, before.slices)
        known = NodeIndex(before.nodes, before.node_inventories, before.slices) if before.slices is not None else None
        inventories = node_index.build(nodes, pieces, known)
        moved = changed(before.nodes, nodes)
        for name in moved:
            left.pop(name, None)
            if name in nodes:
                left[name] = nodes[name].allocatable
        after = replace(
            before,
            nodes=nodes,
            node_inventories=inventories,
            left=left,
            placed=replace(before.placed),
            slices=pieces,
            tainted=tainted,
        )
        seeing = changed(before.node_inventories, inventories)
        self.cluster = cluster_state.follow(before, after, frozenset((*moved, *seeing)))
        self._seers = _seers(self.cluster)

    def move(self, *, arrived: Iterable[RunningGang] = (), departed: Iterable[RunningGang] = ()) -> None:
        """Add the usage of some gangs, and remove that of others, which were added before."""
        taken, shares, left = self._taken, self._shares, self._left
        where: set[NodeName] = set()
        for running_gang, times in (*((one, -1) for one in departed), *((one, 1) for one in arrived)):
            for holder, uses in running_gang.uses:
                for use in uses:
                    _put(taken, shares, use, holder, times)
                    where.update(self._seers.get((use.device.driver, use.device.pool), ()))
            for node, requests in running_gang.requests:
                before = left.get(node)
                if before is not None:
                    left[node] = {name: amount - times * requests.get(name, 0) for name, amount in before.items()}
                    where.add(node)
        self.cluster = cluster_state.with_usage(self.cluster, (taken, shares), left, frozenset(where))


def _seers(cluster: ClusterState) -> dict[PoolId, tuple[NodeName, ...]]:
    seers: dict[PoolId, list[NodeName]] = {}
    for name, node_inventory in cluster.node_inventories.items():
        for pool in node_inventory.relevant:
            seers.setdefault(pool, []).append(name)
    return {pool: tuple(nodes) for pool, nodes in seers.items()}


def _put(
    taken: dict[DeviceId, Holder],
    shares: dict[DeviceId, tuple[Shared, ...]],
    use: DeviceUse,
    holder: Holder,
    times: int,
) -> None:
    """Add the use of a device, or of a share of it, if times is 1; remove it if -1."""
    device = use.device
    if not use.shared:
        if times > 0:
            taken[device] = holder
        else:
            del taken[device]
        return
    share, others = Shared(use.share, holder), shares.get(device, ())
    if times > 0:
        shares[device] = (*others, share)
        return
    at = others.index(share)
    shares[device] = (*others[:at], *others[at + 1 :])
    if not shares[device]:
        del shares[device]
