"""Gangs that would not fit even after every running gang with a known end has finished.

Such a gang is no head: a reservation for it would hold others for ever. An answer is recomputed after a minute, and
when a gang with an unknown end starts.
"""

from collections.abc import Container
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from admission.api.values.names import GangUid
from admission.dra.state.what_if import WhatIfSeries
from admission.incremental import Memo
from admission.scheduling.backfill import earliest_start, reservations
from admission.scheduling.backfill.reservations import Moment
from admission.scheduling.backfill.running_gangs import RunningGangs
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.cache.verdict_cache import PROOF, Verdict
from admission.scheduling.checks import elastic
from admission.scheduling.checks.chain import Inputs, Known
from admission.workloads.gangs import Group

RETRY = timedelta(minutes=1)
"""How long an answer stands."""


class _Known(NamedTuple):
    """The answer for a gang, and when it was computed."""

    group: Group
    at: datetime
    never_fits: bool


@dataclass(slots=True)
class NeverFits:
    """The answers by gang. present: the running gangs.

    An answer depends on everything and stands for a time, whatever changes meanwhile; so it is no value over
    `admission.incremental`. Its gang and its time are kept with it.
    """

    present: RunningGangs
    _known: dict[GangUid, _Known] = field(default_factory=dict)
    _plans: PlanCache = field(default_factory=PlanCache)
    """Proofs that there is no plan."""
    _simulation: WhatIfSeries = field(default_factory=lambda: WhatIfSeries("at last"))
    _all_ended: Memo[None, Moment] = field(default_factory=lambda: Memo(by_value=True))
    """The moment at which all known ends have passed. Only the number of changes is compared by its value."""

    def __len__(self) -> int:
        return len(self._known)

    def is_known(self, group: Group) -> bool:
        """Return whether a gang is known never to fit."""
        known = self._known.get(group.uid)
        return known is not None and known.group is group and known.never_fits

    def refresh(self, inputs: Inputs, verdict: Verdict) -> bool:
        """Return whether a gang never fits, computed again if needed. verdict: on the gang, now."""
        group = verdict.group
        known = self._known.get(group.uid)
        if known is None or known.group is not group or self.present.now - known.at >= RETRY:
            known = self._known[group.uid] = _Known(group, self.present.now, self._find_never_fits(inputs, verdict))
        return known.never_fits

    def note_arrival(self, gang: GangUid, end: datetime | None) -> None:
        """Record a gang that starts. If its end is unknown, gangs that were found to fit may no longer do."""
        self._known.pop(gang, None)
        if end is None:
            self._known = {uid: known for uid, known in self._known.items() if known.never_fits}

    def clear(self) -> None:
        """Drop all answers."""
        self._known.clear()

    def begin(self, waiting: Container[GangUid], most: int) -> None:
        """Drop the answers for gangs that no longer wait, if more than `most` are kept."""
        if len(self._known) > most:
            self._known = {uid: known for uid, known in self._known.items() if uid in waiting}

    def forget(self) -> None:
        """Drop the proofs."""
        self._plans = PlanCache()
        self._all_ended.keep_only(())

    def _find_never_fits(self, inputs: Inputs, verdict: Verdict) -> bool:
        moment = self._moment(inputs)
        if elastic.is_whole(verdict.group) and not moment.queue_usage.fits(inputs.queue.name, verdict.needed):
            return True
        plan = earliest_start.planned(replace(inputs, known=_found(verdict)), moment, self._plans)
        self._plans.forget_changes()
        return plan is None

    def _moment(self, inputs: Inputs) -> Moment:
        """Return the moment after all known ends; cached, since many gangs need the same."""
        cluster, queue_usage, present = inputs.cluster, inputs.queue_usage, self.present

        def at_last() -> Moment:
            removed = [one for one in present.expected_ends.values() if one.end is not None]
            all_ended = self._simulation.cluster(cluster, removed=[one.interval for one in removed])
            return reservations.moment(all_ended, queue_usage, present.now, removed)

        return self._all_ended.get(None, (cluster, queue_usage, present.changes), at_last)


def _found(verdict: Verdict) -> Known | None:
    """Return what was found of a gang that has no plan now, which passed all checks; None of one that may not have."""
    group, equivalent = verdict.group, verdict.equivalent
    if verdict.by != PROOF or equivalent is None or len(equivalent.pods) != len(group.waiting):
        return None
    return Known(group=group, demands=equivalent.pods, needed=verdict.needed, equivalent=equivalent)
