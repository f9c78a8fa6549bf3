"""The dashboard's view of the cluster: a store whose queues, gangs, meters and shapes are decoded with their status."""

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
METERS = replace(watched_resources.METERS, decode=observed.decode_meter)
SHAPES = replace(watched_resources.SHAPES, decode=observed.decode_shape)

WATCHED = (
    QUEUES,
    GANGS,
    METERS,
    SHAPES,
    watched_resources.NODES,
    watched_resources.CLASSES,
    watched_resources.SLICES,
    watched_resources.CLAIMS,
)
"""The kinds that the dashboard's store watches. Pods are not among them: a gang's status has all that is shown."""


class DashboardStore:
    """A store of `WATCHED`: the real `dashboard.ports.View`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def synced(self) -> bool:
        """Whether everything has been listed once; nothing is shown before."""
        return self._store.synced

    def observe(self) -> ObservedObjects:
        """Return a frozen view. The mapping of a kind that has not changed since the last call is the same object."""
        malformed = {key: error for table in self._store.tables.values() for key, error in table.malformed().items()}
        return ObservedObjects(
            queues=self._freeze(QUEUES),
            gangs=self._freeze(GANGS),
            meters=self._freeze(METERS),
            shapes=self._freeze(SHAPES),
            nodes=self._freeze(watched_resources.NODES),
            classes=self._freeze(watched_resources.CLASSES),
            slices=self._freeze(watched_resources.SLICES),
            claims=self._freeze(watched_resources.CLAIMS),
            malformed=malformed,
            troubles=self._store.troubles(),
        )

    def _freeze(self, kind: Kind) -> Mapping[Any, Any]:
        return self._store.tables[kind].freeze()
