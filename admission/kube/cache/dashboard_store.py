"""The cluster as the dashboard shows it: a store of its own kinds, in which queues and gangs keep their status."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from admission.api.muster import observed
from admission.api.muster.observed import ObservedObjects
from admission.kube.cache import watched_resources
from admission.kube.cache.store import Store
from admission.kube.cache.watched_resources import Kind

QUEUES = replace(watched_resources.QUEUES, decode=observed.decode_queue)
GANGS = replace(watched_resources.GANGS, decode=observed.decode_gang)

WATCHED = (
    QUEUES,
    GANGS,
    watched_resources.METERS,
    watched_resources.NODES,
    watched_resources.SLICES,
    watched_resources.CLAIMS,
)
"""What a store for the dashboard watches. It reads no pods: a gang's status says all that is shown of them."""


class Showcase:
    """A store of `WATCHED`, as the dashboard asks for it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def synced(self) -> bool:
        """Whether everything has been listed once; nothing is shown before."""
        return self._store.synced

    def observe(self) -> ObservedObjects:
        """Freeze what is known now. A kind that has not changed since the last time is the same mapping again."""
        malformed = {key: error for table in self._store.tables.values() for key, error in table.malformed().items()}
        return ObservedObjects(
            queues=self._frozen(QUEUES),
            gangs=self._frozen(GANGS),
            meters=self._frozen(watched_resources.METERS),
            nodes=self._frozen(watched_resources.NODES),
            slices=self._frozen(watched_resources.SLICES),
            claims=self._frozen(watched_resources.CLAIMS),
            malformed=malformed,
            troubles=self._store.troubles(),
        )

    def _frozen(self, kind: Kind) -> Mapping[Any, Any]:
        return self._store.tables[kind].freeze()
