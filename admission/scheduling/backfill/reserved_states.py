"""The states of the cluster beside reservations."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.what_if import Arrival, WhatIfSeries
from admission.scheduling.backfill.reservations import Reservation


@dataclass(slots=True)
class ReservedStates:
    """The states beside sets of reservations, kept for one cluster state. Only this class changes its fields."""

    _series: WhatIfSeries = field(default_factory=lambda: WhatIfSeries("beside"))
    _of: ClusterState | None = None
    _states: dict[tuple[Arrival, ...], ClusterState] = field(default_factory=dict)

    def is_of(self, cluster: ClusterState) -> bool:
        """Return whether the states that are kept are of a cluster state."""
        return self._of is cluster

    def forget(self) -> None:
        self._of = None

    def beside(self, bound: Iterable[Reservation], cluster: ClusterState) -> ClusterState:
        """Return a cluster state with nothing available of what is reserved."""
        if not self.is_of(cluster):
            self._of, self._states = cluster, {}
        arrivals = tuple(one.arrival for one in bound)
        if arrivals not in self._states:
            self._states[arrivals] = self._series.cluster(cluster, kept=arrivals)
        return self._states[arrivals]
