"""What stands free in pieces: where, for which shapes it is of use, and which running gang could be moved to free more.

Devices are counted as `offline` leaves the cluster: what waits in the input has started where it can.
Quotas do not count here: it is about where devices are, not whose they are. Nobody is moved; a move is proposed if the
gang finds another place after one more gang of the shape has started.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from admission.api.kubernetes.devices import DeviceId
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.cli.capacity.copies import Settings
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.gang_request import Plan, PodDemand
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from admission.simulation.offline import Outcome

MOST_PODS = 1_000
"""The most pods of a shape that are counted."""

MOST_MOVED = 50
"""The most running gangs whose move is tried for a shape, those with the fewest devices first."""

MOST_PROPOSED = 5
"""The most moves that are proposed for a shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeDevices:
    """A node with free devices. free, total: of a driver. usable: by shape, how many of them its pods would take."""

    node: NodeName
    driver: str
    free: int
    total: int
    usable: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A running gang that could be elsewhere. starts: how many more gangs of the shape there would be room for."""

    shape: str
    gang: str
    devices: int
    source: tuple[NodeName, ...]
    target: tuple[NodeName, ...]
    starts: int


class Pieces:
    """The free devices of one cluster. before: the input. demands: by shape, those of one gang of it."""

    def __init__(
        self, outcome: Outcome, before: Snapshot, demands: Mapping[str, Sequence[PodDemand]], settings: Settings
    ) -> None:
        self._before = before
        self._names = {place.uid: f"{gang.namespace}/{gang.name}" for gang in outcome.gangs for place in gang.plan}
        """The names of gangs for people, by pod."""
        self._snapshot = outcome.snapshot
        self._placements = outcome.placements
        self._demands = demands
        self._settings = settings
        self._selectors = Selectors(settings.profile.cel)
        self._cluster = self._built(outcome.snapshot, outcome.placements)

    def free(self) -> list[FreeDevices]:
        """Return the nodes with free devices, those with the most first; devices that several nodes see left out."""
        usable = {shape: self._usable(demands) for shape, demands in self._demands.items()}
        total, free = Counter[tuple[NodeName, str]](), Counter[tuple[NodeName, str]]()
        for slice_ in self._snapshot.slices.values():
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
                usable={shape: found[node, driver] for shape, found in usable.items()},
            )
            for (node, driver), count in sorted(free.items(), key=lambda one: (-one[1], one[0]))
            if count
        ]

    def moves(self) -> list[Move]:
        """Return the moves that make room for more gangs, those for the most first, then the smallest."""
        return [
            move
            for shape, demands in self._demands.items()
            for move in sorted(self._moves(shape, demands), key=lambda one: (-one.starts, one.devices, one.gang))[
                :MOST_PROPOSED
            ]
        ]

    def _usable(self, demands: Sequence[PodDemand]) -> Counter[tuple[NodeName, str]]:
        """Return how many devices on each node pods of a gang would take, if there were as many as find a place."""
        found = Counter[tuple[NodeName, str]]()
        for plan, _ in self._filled(self._cluster, demands[:1]):
            for pod in plan.pods:
                drivers = [one.device.driver for claim in pod.claims for one in claim.devices]
                found.update((pod.node, driver) for driver in drivers)
        return found

    def _filled(self, cluster: ClusterState, demands: Sequence[PodDemand]) -> Iterator[tuple[Plan, ClusterState]]:
        """Yield the plans of one gang after the other, and the states after each, until there is none."""
        for number in range(MOST_PODS // len(demands)):
            pods = [_numbered(one, number) for one in demands]
            plan = self._planned(pods, cluster)
            if plan is None:
                return
            cluster = cluster_state.granted(
                cluster, plan, {one.pod.meta.uid: one.pod for one in pods}, f"(copy {number})"
            )
            yield plan, cluster

    def _moves(self, shape: str, demands: Sequence[PodDemand]) -> Iterator[Move]:
        now = sum(1 for _ in self._filled(self._cluster, demands))
        for placement in sorted(self._placements, key=lambda one: (_devices(one), one.gang))[:MOST_MOVED]:
            pods = self._pods(placement)
            if not pods or not _devices(placement):
                continue
            filled = list(self._filled(self._without(placement), demands))
            target = self._planned(pods, filled[now][1]) if len(filled) > now else None
            if target is not None:
                yield Move(
                    shape=shape,
                    gang=next((self._names[uid] for uid in placement.seats if uid in self._names), placement.gang),
                    devices=_devices(placement),
                    source=tuple(sorted({seat.node for seat in placement.seats.values()})),
                    target=tuple(sorted({pod.node for pod in target.pods})),
                    starts=len(filled) - now,
                )

    def _pods(self, placement: Placement) -> list[PodDemand]:
        """Return the pods of a running gang as if they were to be placed; none if a claim of theirs is not known."""
        claims = {claim.meta.uid: claim for claim in self._snapshot.claims.values()}
        found: list[PodDemand] = []
        for uid, seat in placement.seats.items():
            pod = self._snapshot.pods.get(uid)
            if pod is None or not all(claim in claims for claim in seat.claims):
                return []
            selector = self._selector(pod)
            wanted = tuple(replace(claims[claim], allocation=None, reserved_for=()) for claim in seat.claims)
            found.append(PodDemand(pod=replace(pod, node=NodeName(""), node_selector=selector), claims=wanted))
        return found

    def _selector(self, pod: Pod) -> Mapping[str, str]:
        """Return a pod's node selector without the node that Muster chose, as that of pods that run in the input is."""
        before = self._before.pods.get(pod.meta.uid, pod)
        if not before.node:
            return before.node_selector
        return {name: value for name, value in before.node_selector.items() if name != names.HOSTNAME}

    def _without(self, placement: Placement) -> ClusterState:
        """Return the state of the cluster without a gang."""
        claims = {claim for seat in placement.seats.values() for claim in seat.claims}
        snapshot = replace(
            self._snapshot,
            pods={uid: pod for uid, pod in self._snapshot.pods.items() if uid not in placement.seats},
            claims={key: claim for key, claim in self._snapshot.claims.items() if claim.meta.uid not in claims},
        )
        return self._built(snapshot, [one for one in self._placements if one is not placement])

    def _built(self, snapshot: Snapshot, placements: Sequence[Placement]) -> ClusterState:
        return cluster_state.build(snapshot, placements, profile=self._settings.profile)

    def _planned(self, pods: Sequence[PodDemand], cluster: ClusterState) -> Plan | None:
        plan = gang_planner.plan(pods, cluster, selectors=self._selectors, steps=self._settings.steps, mute=True)
        return plan if isinstance(plan, Plan) else None


def _devices(placement: Placement) -> int:
    return sum(len(holding.devices) for holding in placement.holdings.values())


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
