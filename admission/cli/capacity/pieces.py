"""The fragments of a simulated cluster: what `offline` leaves free, after what waits in the input has started."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.cli.capacity.copies import Settings
from admission.dra.requests.gang_request import PodDemand
from admission.dra.state import cluster_state
from admission.dra.state.what_if import Belongings
from admission.scheduling.fragments import Fragments, Movable, Wanted
from admission.simulation.offline import Outcome
from admission.workloads import gangs, topology
from admission.workloads.gangs import Group


def fragments(outcome: Outcome, before: Snapshot, wanted: Mapping[str, Wanted], settings: Settings) -> Fragments:
    """Return what stands free at the end of a simulation. before: its input."""
    cluster = cluster_state.build(outcome.snapshot, outcome.placements, profile=settings.profile)
    running = _Running(outcome, before).movable()
    return Fragments(cluster, outcome.snapshot.slices.values(), wanted, running, steps=settings.steps)


class _Running:
    """The gangs that run at the end of a simulation, as they would be placed again. before: its input."""

    def __init__(self, outcome: Outcome, before: Snapshot) -> None:
        self._before = before
        self._snapshot = outcome.snapshot
        self._placements = outcome.placements
        self._names = {place.uid: f"{gang.namespace}/{gang.name}" for gang in outcome.gangs for place in gang.plan}
        """The names of gangs for people, by pod."""
        self._claims = {claim.meta.uid: claim for claim in outcome.snapshot.claims.values()}
        self._users: dict[Uid, set[str]] = {}
        """By claim, the gangs that use it."""
        for placement in outcome.placements:
            for seat in placement.seats.values():
                for claim in seat.claims:
                    self._users.setdefault(claim, set()).add(placement.gang)

    def movable(self) -> Iterator[Movable]:
        """Yield the gangs that could be moved by themselves.

        Left out are gangs without devices, those that share a claim with others, and those whose pods follow each other
        into domains of their own.
        """
        placements = {placement.gang_uid: placement for placement in self._placements}
        for group in gangs.groups(self._snapshot, placements):
            placement = group.placement
            devices = _devices(placement) if placement is not None else 0
            wanted = self._wanted(group, placement) if placement is not None and devices else None
            if placement is None or wanted is None:
                continue
            yield Movable(
                gang=next((self._names[uid] for uid in placement.seats if uid in self._names), placement.gang),
                devices=devices,
                nodes=tuple(sorted({seat.node for seat in placement.seats.values()})),
                wanted=wanted,
                belongings=self._belongings(placement),
            )

    def _wanted(self, group: Group, placement: Placement) -> Wanted | None:
        """Return what a gang would ask for; None if it cannot be moved by itself, or if that is not known."""
        pods: list[Pod] = []
        demands: list[PodDemand] = []
        for uid, seat in placement.seats.items():
            pod = self._snapshot.pods.get(uid)
            if pod is None or not all(len(self._users[claim]) == 1 and claim in self._claims for claim in seat.claims):
                return None
            pod = replace(pod, node=NodeName(""), node_selector=self._selector(pod))
            wanted = tuple(replace(self._claims[claim], allocation=None, reserved_for=()) for claim in seat.claims)
            pods.append(pod)
            demands.append(PodDemand(pod=pod, claims=wanted))
        if topology.plans_followers(group):
            return None
        again = replace(group, pods=tuple(pods), placement=None)
        asked = topology.request(again)
        return Wanted(pods=topology.with_subgroups(demands, asked, again), topology=asked)

    def _selector(self, pod: Pod) -> Mapping[str, str]:
        """Return a pod's node selector without the node that Muster chose, as that of pods that run in the input is."""
        before = self._before.pods.get(pod.meta.uid, pod)
        if not before.node:
            return before.node_selector
        return {name: value for name, value in before.node_selector.items() if name != names.HOSTNAME}

    def _belongings(self, placement: Placement) -> Belongings:
        claims = {claim for seat in placement.seats.values() for claim in seat.claims}
        pods = {uid: self._snapshot.pods[uid] for uid in placement.seats}
        return Belongings(
            claims=frozenset(self._claims[claim].meta.key for claim in claims),
            uids=frozenset(claims),
            pods=frozenset(pods),
            room=tuple((pod.node or placement.seats[uid].node, pod.counted) for uid, pod in pods.items()),
            placed=frozenset(pods),
        )


def _devices(placement: Placement) -> int:
    return sum(len(holding.devices) for holding in placement.holdings.values())
