"""Worlds as they will be, or as they must not be disturbed: some have gone, and others have come.

For reservations in time (`policy.reserving`): what a gang may have when those who run have ended, and what is left now
for those who would still run then. Nothing here knows of times: the caller says who has gone and who has come.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from admission.api.devices import DeviceId
from admission.api.names import NodeName
from admission.api.nodes import Resources
from admission.dra import worlds
from admission.dra.takings import Taking
from admission.dra.worlds import Holder, Shared, World

Room = Mapping[NodeName, Mapping[str, int] | None]
"""What is left on nodes; None for a node that limits nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stay:
    """A gang that is there now: its devices are those of which it is the holder. requests: of each of its pods."""

    gang: str
    requests: tuple[tuple[NodeName, Resources], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Visit:
    """A gang that is to come: its devices, and the requests of its pods.

    room: what is left beside it on its nodes, by the time that it is there.
    """

    gang: str
    takings: tuple[Taking, ...] = ()
    requests: tuple[tuple[NodeName, Resources], ...] = ()
    room: Room = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Last:
    """What was imagined last, and from what."""

    now: World
    parts: frozenset[Stay | Visit]
    world: World


@dataclass(slots=True)
class Outlook:
    """Imagines one world after the other, each from the one that is now.

    realm: tells its worlds from others, so that what is remembered of nodes from world to world stays apart.
    """

    realm: str
    _last: _Last | None = None
    _held: tuple[World, Mapping[str, Sequence[DeviceId]]] | None = None

    def world(
        self, now: World, *, gone: Iterable[Stay] = (), came: Iterable[Visit] = (), kept: Iterable[Visit] = ()
    ) -> World:
        """Return what is left when some have gone, others have come, and what is kept for a third is out of reach.

        A device that somebody has and another is to have is in use. Of a node with something kept there is left what
        there is now, or what will be beside that, whichever is less.
        """
        gone, came, kept = tuple(gone), tuple(came), tuple(kept)
        taken, shares, left = dict(now.taken), dict(now.shares), dict(now.left)
        names = frozenset(one.gang for one in gone)
        for stay in gone:
            for device in self._devices(now).get(stay.gang, ()):
                _free(taken, shares, device, stay.gang)
            for node, requests in stay.requests:
                left[node] = _more(left.get(node), requests, 1)
        for visit in (*came, *kept):
            _give(taken, shares, visit)
        for visit in came:
            for node, requests in visit.requests:
                left[node] = _more(left.get(node), requests, -1)
        for visit in kept:
            for node, room in visit.room.items():
                left[node] = _less(left.get(node), room)
        world = replace(
            now,
            realm=self.realm,
            taken=taken,
            shares=shares,
            left=left,
            displaced=tuple(one for one in now.displaced if one.holder.gang not in names),
            awaited={node: tuple(one for one in pods if one.gang not in names) for node, pods in now.awaited.items()},
        )
        world.passing.update(now.passing)
        return self._followed(now, frozenset({*gone, *came, *kept}), world)

    def _followed(self, now: World, parts: frozenset[Stay | Visit], world: World) -> World:
        """Note where a world differs from the last one, as far as that is known."""
        last = self._last
        self._last = _Last(now, parts, world)
        if last is None or last.now.nodes is not now.nodes:
            return world
        between = frozenset[NodeName]() if last.now is now else worlds.changed(last.now, now)
        if between is None:
            return world
        nodes = set(between)
        devices: set[DeviceId] = set()
        for part in last.parts ^ parts:
            nodes.update(node for node, _ in part.requests)
            if isinstance(part, Visit):
                devices.update(taking.device for taking in part.takings)
                nodes.update(part.room)
            else:
                devices.update(self._devices(now).get(part.gang, ()))
        return worlds.follow(last.world, world, frozenset(nodes) | worlds.seeing(world, devices))

    def _devices(self, now: World) -> Mapping[str, Sequence[DeviceId]]:
        """Return the devices that each gang has now."""
        if self._held is None or self._held[0] is not now:
            found: dict[str, list[DeviceId]] = {}
            for device, holder in now.taken.items():
                found.setdefault(holder.gang, []).append(device)
            for device, shares in now.shares.items():
                for gang in {share.holder.gang for share in shares}:
                    found.setdefault(gang, []).append(device)
            self._held = now, found
        return self._held[1]


def _free(
    taken: dict[DeviceId, Holder], shares: dict[DeviceId, tuple[Shared, ...]], device: DeviceId, gang: str
) -> None:
    if device in taken and taken[device].gang == gang:
        del taken[device]
    if device in shares:
        shares[device] = tuple(share for share in shares[device] if share.holder.gang != gang)
        if not shares[device]:
            del shares[device]


def _give(taken: dict[DeviceId, Holder], shares: dict[DeviceId, tuple[Shared, ...]], visit: Visit) -> None:
    holder = Holder(claim="", gang=visit.gang)
    for taking in visit.takings:
        if taking.shared:
            shares[taking.device] = (*shares.get(taking.device, ()), Shared(taking.share, holder))
        else:
            taken.setdefault(taking.device, holder)


def _more(left: Mapping[str, int] | None, requests: Resources, times: int) -> Mapping[str, int] | None:
    if left is None:
        return None
    return {name: had + times * requests.get(name, 0) for name, had in left.items()}


def _less(left: Mapping[str, int] | None, room: Mapping[str, int] | None) -> Mapping[str, int] | None:
    if left is None or room is None:
        return left if room is None else room
    return {name: min(had, room.get(name, had)) for name, had in left.items()}
