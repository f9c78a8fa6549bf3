"""What stands free in pieces: where, for which gangs it is of use, and which running gang could be moved to free more.

Quotas count only in `plans`: all else is about where devices are, not whose they are. Nobody is moved; a move is
proposed if the gang finds another place after one more gang that is wanted has started. `muster capacity` and the
dashboard show it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from admission.api.kubernetes.devices import DeviceId, Slice
from admission.api.values.names import NodeName, Uid
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters
from admission.dra.metering.device_meters import Meters
from admission.dra.planner.no_plan import NoPlan
from admission.dra.requests.gang_request import Affordable, Plan, PodDemand, Topology, anything
from admission.dra.state import cluster_state, what_if
from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.what_if import Belongings

MOST_PODS = 1_000
"""The most pods of a kind of gangs that are counted; of larger gangs one is."""

MOST_MOVED = 50
"""The most running gangs whose move is tried for a kind of gangs, those with the fewest devices first."""

MOST_PROPOSED = 5
"""The most moves that are proposed for a kind of gangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What one gang asks for: of each of its pods, and of their domains. topology: None if they may go anywhere."""

    pods: Sequence[PodDemand]
    topology: Topology | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Movable:
    """A running gang. gang: its name. nodes: where it is. wanted: what it would ask for if it were placed again."""

    gang: str
    devices: int
    nodes: tuple[NodeName, ...]
    wanted: Wanted
    belongings: Belongings


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeDevices:
    """A node with free devices. free, total: of a driver. usable: by kind of gangs, how many of them it would take."""

    node: NodeName
    driver: str
    free: int
    total: int
    usable: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A running gang that could be elsewhere. starts: how many more gangs of the kind there would be room for."""

    kind: str
    gang: str
    devices: int
    source: tuple[NodeName, ...]
    target: tuple[NodeName, ...]
    starts: int


class _Filled(NamedTuple):
    """A cluster in which as many gangs of a kind have started as find a place. devices: what they take, by node."""

    gangs: int
    cluster: ClusterState
    devices: Counter[tuple[NodeName, str]]


class Fragments:
    """The free devices of one cluster, for kinds of gangs. wanted: one gang of each kind. steps: of each plan."""

    def __init__(
        self,
        cluster: ClusterState,
        slices: Iterable[Slice],
        wanted: Mapping[str, Wanted],
        running: Iterable[Movable] = (),
        *,
        steps: int,
        most_moved: int = MOST_MOVED,
    ) -> None:
        self._cluster = cluster
        self._slices = tuple(slices)
        self._wanted = wanted
        self._running = sorted(running, key=lambda one: (one.devices, one.gang))[:most_moved]
        self._steps = steps
        self._selectors = Selectors(cluster.profile.cel)
        self._filled: dict[str, _Filled] = {}

    def starts(self, kind: str) -> tuple[int, bool]:
        """Return how many gangs of a kind find a place, and whether that is all that were tried."""
        found = self._fill(kind).gangs
        return found, found == _most(self._wanted[kind])

    def plans(self, kind: str, meters: Meters, affordable: Affordable) -> Iterator[Plan | NoPlan]:
        """Yield the plans of one gang of a kind after the other with their charges, and then why there is no other.

        Not the latter if all that are tried have a plan. affordable: is asked again after each.
        """
        for answer, _ in self._answers(self._cluster, self._wanted[kind], meters=meters, affordable=affordable):
            yield answer

    def free(self) -> list[FreeDevices]:
        """Return the nodes with free devices, those with the most first; devices that several nodes see left out."""
        usable = {kind: self._usable(kind) for kind in self._wanted}
        total, free = Counter[tuple[NodeName, str]](), Counter[tuple[NodeName, str]]()
        for slice_ in self._slices:
            for device in slice_.devices if slice_.node_name else ():
                place = NodeName(slice_.node_name), slice_.driver
                one = DeviceId(driver=slice_.driver, pool=slice_.pool, device=device.name)
                total[place] += 1
                free[place] += one not in self._cluster.taken and one not in self._cluster.shares
        return [
            FreeDevices(
                node=node,
                driver=driver,
                free=count,
                total=total[node, driver],
                usable={kind: found[node, driver] for kind, found in usable.items()},
            )
            for (node, driver), count in sorted(free.items(), key=lambda one: (-one[1], one[0]))
            if count
        ]

    def moves(self) -> list[Move]:
        """Return the moves that make room for more gangs, those for the most first, then the smallest.

        For gangs of more than MOST_PODS none is tried: each takes as long as planning one of them does.
        """
        return [
            move
            for kind, wanted in self._wanted.items()
            if len(wanted.pods) <= MOST_PODS
            for move in sorted(self._moves(kind), key=lambda one: (-one.starts, one.devices, one.gang))[:MOST_PROPOSED]
        ]

    def _usable(self, kind: str) -> Counter[tuple[NodeName, str]]:
        """Return how many devices on each node pods of a kind would take, if there were as many as find a place.

        Where a gang has to be in one domain, a pod alone says nothing, and whole gangs are counted.
        """
        wanted = self._wanted[kind]
        if wanted.topology is not None and wanted.topology.binds:
            return self._fill(kind).devices
        return self._filled_with(self._cluster, Wanted(pods=wanted.pods[:1])).devices

    def _fill(self, kind: str) -> _Filled:
        if kind not in self._filled:
            self._filled[kind] = self._filled_with(self._cluster, self._wanted[kind])
        return self._filled[kind]

    def _filled_with(self, cluster: ClusterState, wanted: Wanted) -> _Filled:
        gangs, devices = 0, Counter[tuple[NodeName, str]]()
        for plan, after in self._granted(cluster, wanted):
            gangs, cluster = gangs + 1, after
            for pod in plan.pods:
                devices.update((pod.node, one.device.driver) for claim in pod.claims for one in claim.devices)
        return _Filled(gangs, cluster, devices)

    def _granted(
        self, cluster: ClusterState, wanted: Wanted, *, before: int = 0
    ) -> Iterator[tuple[Plan, ClusterState]]:
        """Yield the plans of one gang after the other, and the states after each, until there is none.

        before: how many have started before these.
        """
        for answer, after in self._answers(cluster, wanted, before=before):
            if isinstance(answer, Plan):
                yield answer, after

    def _answers(
        self,
        cluster: ClusterState,
        wanted: Wanted,
        *,
        before: int = 0,
        meters: Meters = device_meters.NONE,
        affordable: Affordable = anything,
    ) -> Iterator[tuple[Plan | NoPlan, ClusterState]]:
        """Yield the same, and then the answer of why there is no other, if there is none."""
        for number in range(before, _most(wanted)):
            pods = [_numbered(one, number) for one in wanted.pods]
            answer = self._planned(pods, wanted.topology, cluster, meters=meters, affordable=affordable)
            if isinstance(answer, NoPlan):
                yield answer, cluster
                return
            cluster = cluster_state.granted(
                cluster, answer, {one.pod.meta.uid: one.pod for one in pods}, f"(copy {number})"
            )
            yield answer, cluster

    def _moves(self, kind: str) -> Iterator[Move]:
        wanted, now = self._wanted[kind], self._fill(kind)
        for one in self._running:
            without = what_if.without_gangs(now.cluster, [one.belongings])
            states = [state for _, state in self._granted(without, wanted, before=now.gangs)]
            plan = self._planned(one.wanted.pods, one.wanted.topology, states[0]) if states else None
            target = tuple(sorted({pod.node for pod in plan.pods})) if isinstance(plan, Plan) else one.nodes
            if target != one.nodes:
                yield Move(
                    kind=kind,
                    gang=one.gang,
                    devices=one.devices,
                    source=one.nodes,
                    target=target,
                    starts=len(states),
                )

    def _planned(
        self,
        pods: Sequence[PodDemand],
        topology: Topology | None,
        cluster: ClusterState,
        *,
        meters: Meters = device_meters.NONE,
        affordable: Affordable = anything,
    ) -> Plan | NoPlan:
        return gang_planner.plan(
            pods,
            cluster,
            meters=meters,
            selectors=self._selectors,
            steps=self._steps,
            affordable=affordable,
            topology=topology,
            mute=True,
        )


def _most(wanted: Wanted) -> int:
    """Return how many gangs of a kind are tried."""
    return max(1, MOST_PODS // len(wanted.pods))


def _numbered(demand: PodDemand, number: int) -> PodDemand:
    """Return the same demand of another pod, with claims of its own."""
    meta = demand.pod.meta
    pod = replace(demand.pod, meta=replace(meta, uid=Uid(f"{meta.uid}-{number}"), name=f"{meta.name}-{number}"))
    claims = tuple(
        replace(
            claim, meta=replace(claim.meta, uid=Uid(f"{claim.meta.uid}-{number}"), name=f"{claim.meta.name}-{number}")
        )
        for claim in demand.claims
    )
    return replace(demand, pod=pod, claims=claims)
