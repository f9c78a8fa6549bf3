"""What single claims and nodes come to, kept from one world to the next, so that only what changed is counted again.

A world is made anew for every claim and pod that changes, from tens of thousands that did not. What is kept goes by the
identity of the objects that it was found from, which never change; what is gone is forgotten with the next world.
"""

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from admission.api.claims import Claim
from admission.api.entries import Placement
from admission.api.names import NodeName, Uid
from admission.api.nodes import Node, Resources
from admission.api.pods import Pod
from admission.dra import takings
from admission.dra.releases import Features
from admission.dra.takings import Holder, Taking

_Left = Mapping[str, int] | None
_Users = dict[Uid, frozenset[Uid]]


class _Allocated(NamedTuple):
    """A claim that is allocated, and what it takes."""

    claim: Claim
    takings: tuple[Taking, ...]
    holder: Holder


class _Occupied(NamedTuple):
    """A node, the pods that have a place on it, and what they leave."""

    node: Node
    pods: Sequence[Pod]
    left: _Left


@dataclass(slots=True, eq=False)
class Kept:
    """What was counted for the last world of a profile. Not for two threads at once."""

    _claims: dict[str, _Allocated] = field(default_factory=dict)
    _nodes: dict[NodeName, _Occupied] = field(default_factory=dict)
    _users: tuple[Sequence[Placement], _Users] = ((), {})

    def allocated(
        self, claims: Mapping[str, Claim], gangs: Mapping[Uid, str], features: Features
    ) -> Iterator[tuple[Sequence[Taking], Holder]]:
        """Yield what allocated claims take, and who has it. gangs: by the UIDs of claims, who pays for them."""
        before, self._claims = self._claims, {}
        for key, claim in claims.items():
            if claim.allocation is None:
                continue
            gang, known = gangs.get(claim.meta.uid, ""), before.get(key)
            if known is None or known.claim is not claim or known.holder.gang != gang:
                taken = tuple(takings.of_allocation(claim.allocation, features))
                known = _Allocated(claim, taken, Holder(claim=claim.meta.key, gang=gang))
            self._claims[key] = known
            yield known.takings, known.holder

    def left(
        self, nodes: Mapping[NodeName, Node], pods: Mapping[Uid, Pod], placements: Sequence[Placement]
    ) -> dict[NodeName, _Left]:
        """Return allocatable less the requests of bound, unfinished pods and of granted pods that are not bound yet."""
        there: dict[NodeName, list[Pod]] = {}
        for pod in pods.values():
            if pod.node and not pod.finished:
                there.setdefault(pod.node, []).append(pod)
        for placement in placements:
            for seat in placement.seats.values():
                waiting = pods.get(seat.pod_uid)
                if waiting is not None and not waiting.node and not waiting.finished:
                    there.setdefault(seat.node, []).append(waiting)
        before, self._nodes = self._nodes, {}
        for name, node in nodes.items():
            here, known = there.get(name, ()), before.get(name)
            if known is None or known.node is not node or not are_same(known.pods, here):
                left: _Left = node.allocatable
                for pod in here:
                    left = less(left, pod.requests)
                known = _Occupied(node, here, left)
            self._nodes[name] = known
        return {name: known.left for name, known in self._nodes.items()}

    def users(self, placements: Sequence[Placement]) -> _Users:
        """Return the pods that have a seat and use a claim, by the claim's UID."""
        before, known = self._users
        if are_same(before, placements):
            return known
        found: dict[Uid, list[Uid]] = {}
        for placement in placements:
            for seat in placement.seats.values():
                for uid in seat.claims:
                    found.setdefault(uid, []).append(seat.pod_uid)
        users = {uid: _same(known.get(uid), pods) for uid, pods in found.items()}
        self._users = placements, users
        return users


def less(left: _Left, requests: Resources) -> _Left:
    """Return what is left of a node's resources beside a pod."""
    if left is None:
        return None
    return {resource: amount - requests.get(resource, 0) for resource, amount in left.items()}


def are_same(one: Sequence[object], other: Sequence[object]) -> bool:
    """Return whether these are the same objects."""
    return len(one) == len(other) and all(map(operator.is_, one, other))


def _same(known: frozenset[Uid] | None, pods: Sequence[Uid]) -> frozenset[Uid]:
    """Return the pods as a set; that of before, where it is the same."""
    if known is not None and len(known) == len(pods) and known.issuperset(pods):
        return known
    return frozenset(pods)
