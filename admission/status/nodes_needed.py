"""What held gangs need of nodes that are not there, as it was last found out, and when it is to be found out again.

It is looked for at most once in a while, since it may take many plans (`Bounds.pace`). What was found for a gang stands
until then, while the gang is held for want of devices.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from admission.api.values.names import GangUid
from admission.incremental import are_same
from admission.scheduling.capacity.node_needs import Bounds, NodesNeeded


@dataclass(slots=True)
class NodesNeededState:
    """The needs of this leader's held gangs. One per leader.

    Rule: `begin` drops the needs of gangs that are not held any more, and says whether to look again; `keep` replaces
    all of them; `drop` forgets those of gangs for which nodes were asked. What they depend on is compared by identity,
    but not in every cycle, so this is no value over `admission.incremental`.
    """

    _needed: dict[GangUid, NodesNeeded] = field(default_factory=dict)
    _basis: tuple[object, ...] = ()
    _due_at: datetime | None = None
    """When the needs may be looked for again."""
    _is_due: bool = False
    _fresh: dict[GangUid, NodesNeeded] = field(default_factory=dict)
    """What was found since `take_fresh` was called."""
    in_vain: frozenset[GangUid] = frozenset()
    """The gangs that have their turn after the others next time (`Assessment.in_vain`)."""

    @property
    def needed(self) -> Mapping[GangUid, NodesNeeded]:
        """Return what gangs need, by gang."""
        return self._needed

    @property
    def next(self) -> datetime | None:
        """Return when the needs have to be looked for again; None if nothing has changed."""
        return self._due_at if self._is_due else None

    def begin(self, held: Collection[GangUid], basis: tuple[object, ...], now: datetime, bounds: Bounds) -> bool:
        """Return whether to look for the needs now. held: the gangs that may have any. basis: what these depend on."""
        for uid in self._needed.keys() - set(held):
            del self._needed[uid]
        self._is_due = not are_same(self._basis, basis)
        if not self._is_due or (self._due_at is not None and now < self._due_at):
            return False
        self._basis, self._due_at, self._is_due = basis, now + bounds.pace, False
        return True

    def keep(self, needed: Mapping[GangUid, NodesNeeded], in_vain: frozenset[GangUid] = frozenset()) -> None:
        """Keep what was found. in_vain: if there are any, others have to be looked at though nothing changes."""
        self._needed, self._fresh, self.in_vain = dict(needed), dict(needed), in_vain
        if in_vain:
            self.look_again()

    def take_fresh(self) -> Mapping[GangUid, NodesNeeded]:
        """Return what was found since the last call, in the order in which gangs come."""
        fresh, self._fresh = self._fresh, {}
        return fresh

    def drop(self, gangs: Iterable[GangUid]) -> None:
        """Forget what gangs need that it was asked for."""
        for gang in gangs:
            self._needed.pop(gang, None)

    def look_again(self) -> None:
        """Have the needs looked for again as soon as they may, though nothing changes."""
        self._basis = ()
        self._is_due = True
