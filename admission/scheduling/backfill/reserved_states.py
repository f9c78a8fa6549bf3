"""The states of the cluster without what is reserved."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.what_if import Arrival, WhatIfSeries
from admission.scheduling.backfill.reservations import Reservation


@dataclass(slots=True)
class ReservedStates:
    """The states without what sets of reservations take, kept for one cluster state. Only this class changes them."""

    _series: WhatIfSeries = field(default_factory=lambda: WhatIfSeries("excluding"))
    _cluster: ClusterState | None = None
    _states: dict[tuple[Arrival, ...], ClusterState] = field(default_factory=dict)

    def is_for(self, cluster: ClusterState) -> bool:
        """Return whether the states that are kept are for a cluster state."""
        return self._cluster is cluster

    def forget(self) -> None:
        self._cluster = None

    def excluding(self, bound: Iterable[Reservation], cluster: ClusterState) -> ClusterState:
        """Return a cluster state with nothing available of what is reserved."""
        if not self.is_for(cluster):
            self._cluster, self._states = cluster, {}
        arrivals = tuple(one.arrival for one in bound)
        if arrivals not in self._states:
            self._states[arrivals] = self._series.cluster(cluster, kept=arrivals)
        return self._states[arrivals]
