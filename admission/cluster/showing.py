"""The cluster as the dashboard shows it: a store of its own kinds, in which queues and gangs keep their status."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from admission.api.muster import observed
from admission.api.muster.observed import Sights
from admission.cluster import kinds
from admission.cluster.kinds import Kind
from admission.cluster.store import Store

QUEUES = replace(kinds.QUEUES, decode=observed.decode_queue)
GANGS = replace(kinds.GANGS, decode=observed.decode_gang)

WATCHED = (QUEUES, GANGS, kinds.METERS, kinds.NODES, kinds.SLICES, kinds.CLAIMS)
"""What a store for the dashboard watches. It reads no pods: a gang's status says all that is shown of them."""


class Showcase:
    """A store of `WATCHED`, as the dashboard asks for it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def synced(self) -> bool:
        """Whether everything has been listed once; nothing is shown before."""
        return self._store.synced

    def sights(self) -> Sights:
        """Freeze what is known now. A kind that has not changed since the last time is the same mapping again."""
        malformed = {key: error for table in self._store.tables.values() for key, error in table.malformed().items()}
        return Sights(
            queues=self._frozen(QUEUES),
            gangs=self._frozen(GANGS),
            meters=self._frozen(kinds.METERS),
            nodes=self._frozen(kinds.NODES),
            slices=self._frozen(kinds.SLICES),
            claims=self._frozen(kinds.CLAIMS),
            malformed=malformed,
            troubles=self._store.troubles(),
        )

    def _frozen(self, kind: Kind) -> Mapping[Any, Any]:
        return self._store.tables[kind].freeze()
