"""A gang's question with fewer nodes in it, and the same answer: of nodes that are equal to it, as many as it has pods.

A plan puts a gang of n pods on n nodes at most, so of equal nodes it needs no more than n, and those that come first in
the order of names will do. That holds where what happens on one node changes nothing on others; elsewhere nothing is
left out. What tells nodes apart is kept from world to world: only nodes that changed are looked at again.

Reasons why there is no plan are told of all nodes, so this is for who does not ask for them.
"""

import bisect
from collections.abc import Hashable
from dataclasses import replace

from admission.api.names import NodeName
from admission.dra import asking, boards, filters, waking
from admission.dra.asking import Mode
from admission.dra.boards import Board
from admission.dra.demands import Gang, PodKind
from admission.dra.traits import Traits
from admission.dra.worlds import World

ROOMS = 10_000
"""Pods for which a node has room, as far as they are counted: no gang has more."""


class Rack:
    """The nodes where pods of one kind may go, by what tells them apart, in one world."""

    def __init__(self, kind: PodKind, board: Board, *, counts: bool) -> None:
        """counts: whether devices in use are none that a pod might ask for, so that free ones can be counted."""
        self._wants = kind.wants
        self._nodes = kind.nodes
        self._least = kind.devices if counts else 0
        self._board = board
        self._world: World | None = None
        self._likes: dict[NodeName, Hashable] = {}
        self._alike: dict[Hashable, list[NodeName]] = {}
        self._odd: set[NodeName] = set()
        """Nodes that see devices of others."""

    def some(self, world: World, most: int) -> frozenset[NodeName] | None:
        """Return enough of all equal nodes; None where all of them have to be looked at."""
        self._update(world)
        if self._odd:
            return None
        return frozenset(name for names in self._alike.values() for name in names[:most])

    def _update(self, world: World) -> None:
        before = self._world
        if before is world:
            return
        self._world = world
        self._board.update(world)
        changed = waking.changed(before, world) if before is not None else None
        for name in self._nodes if changed is None else changed & self._nodes:
            self._put(name, world)

    def _put(self, name: NodeName, world: World) -> None:
        like, before = self._like(name, world), self._likes.pop(name, None)
        if before is not None:
            names = self._alike[before]
            names.pop(bisect.bisect_left(names, name))
            if not names:
                del self._alike[before]
        if like is not None:
            self._likes[name] = like
            bisect.insort(self._alike.setdefault(like, []), name)
        (self._odd.discard if self._board.layout(name).fixed else self._odd.add)(name)

    def _like(self, name: NodeName, world: World) -> Hashable:
        """Return what is equal for equal nodes; None for a node that no pod of the kind can go to now."""
        face, left = self._board.faces[name], world.left.get(name)
        if face.free < self._least or filters.lacking(self._wants, left) is not None:
            return None
        if left is None:
            return face, None
        named = ((left[resource], amount) for resource, amount in self._wants.items() if resource in left)
        return face, min((ROOMS, *(had // amount for had, amount in named)))


def thinned(gang: Gang, world: World, known: Traits) -> Gang:
    """Return a gang that may go to as few nodes as will do; the same where nothing can be left out."""
    if len(gang.kinds) != 1 or gang.shared or world.imagined:
        return gang
    (kind,) = gang.kinds
    options = [*asking.options(gang.claims)]
    shows_taken = any(option.admin or option.mode is Mode.ALL for option in options)
    plain = not shows_taken and all(option.plain for option in options)
    key = (world.realm, shows_taken, kind.nodes, kind.devices, plain, tuple(sorted(kind.wants.items())))
    rack: Rack | None = known.racks.get(key)
    if rack is None:
        board = boards.of(known, world, shows_taken=shows_taken)
        rack = known.racks[key] = Rack(kind, board, counts=plain)
    nodes = rack.some(world, len(kind.members))
    return gang if nodes is None else replace(gang, kinds=(replace(kind, nodes=nodes),))
