"""For whom there is no plan even when all have ended of whom it is known when they do; for `policy`."""

from collections.abc import Container
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from admission.api.muster.gangs import Charge
from admission.api.values.names import GangUid
from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.simulation import Simulation
from admission.quota.headroom import QueueUsage
from admission.scheduling.backfill import earliest_start, reservations
from admission.scheduling.backfill.reservations import Moment
from admission.scheduling.backfill.running import RunningGangs
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.checks import chain
from admission.scheduling.checks.chain import Inputs
from admission.workloads.gangs import Group

HOPE = timedelta(minutes=1)
"""For how long nobody looks again for whom there was no plan even if all had ended."""


class _Known(NamedTuple):
    """What was found of a gang, and when."""

    group: Group
    at: datetime
    is_hopeless: bool


class _AtLast(NamedTuple):
    """How things stand when all have ended, and what that was found from."""

    cluster: ClusterState
    queue_usage: QueueUsage
    changes: int
    moment: Moment


@dataclass(slots=True)
class NeverFits:
    """The gangs that were asked about. present: who is there."""

    present: RunningGangs
    _known: dict[GangUid, _Known] = field(default_factory=dict)
    _plans: PlanCache = field(default_factory=PlanCache)
    """Proofs that there is no plan."""
    _outlook: Simulation = field(default_factory=lambda: Simulation("at last"))
    _at_last: _AtLast | None = None

    def __len__(self) -> int:
        return len(self._known)

    def is_lost(self, group: Group) -> bool:
        """Return whether it is known that there is no hope for a gang."""
        known = self._known.get(group.uid)
        return known is not None and known.group is group and known.is_hopeless

    def look(self, group: Group, inputs: Inputs, needed: Charge) -> bool:
        """Return whether there is none. needed: what the gang takes of its queue's quota at least."""
        known = self._known.get(group.uid)
        if known is None or known.group is not group or self.present.now - known.at >= HOPE:
            known = self._known[group.uid] = _Known(group, self.present.now, self._is_hopeless(group, inputs, needed))
        return known.is_hopeless

    def came(self, gang: GangUid, end: datetime | None) -> None:
        """Take notice of a gang that starts. One of whom nobody knows when it ends may take another's hope."""
        self._known.pop(gang, None)
        if end is None:
            self._known = {uid: known for uid, known in self._known.items() if known.is_hopeless}

    def clear(self) -> None:
        """Look at everybody anew."""
        self._known.clear()

    def begin(self, waiting: Container[GangUid], most: int) -> None:
        """Forget those that do not wait any more, where more are known than some number."""
        if len(self._known) > most:
            self._known = {uid: known for uid, known in self._known.items() if uid in waiting}

    def forget(self) -> None:
        """Forget the proofs."""
        self._plans, self._at_last = PlanCache(), None

    def _is_hopeless(self, group: Group, inputs: Inputs, needed: Charge) -> bool:
        moment = self._moment(inputs)
        if chain.is_whole(group) and not moment.queue_usage.fits(inputs.queue.name, needed):
            return True
        plan = earliest_start.planned(inputs, moment, self._plans)
        self._plans.go_on()
        return plan is None

    def _moment(self, inputs: Inputs) -> Moment:
        """Return how things stand when all have ended; many ask about the same."""
        known, cluster, queue_usage, changes = self._at_last, inputs.cluster, inputs.queue_usage, self.present.changes
        if known is None or not (
            known.cluster is cluster and known.queue_usage is queue_usage and known.changes == changes
        ):
            gone = [one for one in self.present.expected_ends.values() if one.end is not None]
            then = self._outlook.cluster(cluster, gone=[one.stay for one in gone])
            moment = reservations.moment(then, queue_usage, self.present.now, gone)
            known = self._at_last = _AtLast(cluster, queue_usage, changes, moment)
        return known.moment
