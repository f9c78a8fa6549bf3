"""Which holds are to be emitted as Events: each change once, and on pods only what lasts.

A hold of which only numbers change is the same: what is left of a quota or a budget changes all the time, and stands in
the gang's status. That of a passing one settles when its numbers do, too. What the leader before has emitted is not
emitted again: a hold for the reason that is in the status of the Gang.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile

from admission.api.muster.gangs import GangReport, RecordedHold
from admission.api.snapshot import changed as changed_keys
from admission.api.values import reasons
from admission.api.values.names import GangUid
from admission.api.values.reasons import Denial, Hold

SETTLED = timedelta(seconds=5)
"""How long a hold for a passing reason stays the same before it is emitted."""

LONG = timedelta(minutes=5)
"""How long a gang is held for one reason before that is emitted on its pods as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueHold:
    """A gang whose hold is to be emitted. is_new: on the gang and its workload. on_pods: on its pods."""

    report: GangReport
    is_new: bool = False
    on_pods: bool = False


@dataclass(slots=True)
class HoldLog:
    """What was emitted of each held gang. One per leader.

    Rule: `due` alone changes it, once a cycle; a gang that is no longer held has no entry.
    """

    _held: dict[GangUid, tuple[GangReport, str, str]] = field(default_factory=dict)
    """The held gangs, with the reason that is emitted or will be, and the message without its numbers."""
    _new: dict[GangUid, datetime] = field(default_factory=dict)
    """When holds that were not emitted yet are due."""
    _long: dict[GangUid, datetime] = field(default_factory=dict)
    """When holds that were not emitted on pods yet are due there, in this order."""
    _groups: Mapping[GangUid, object] = field(default_factory=dict)
    """All gangs, as of the last call."""

    @property
    def next_new(self) -> datetime | None:
        """Return when the next hold has settled. Those on pods wait for a cycle that has another cause."""
        return min(self._new.values(), default=None)

    def due(
        self,
        changed: Iterable[GangReport],
        groups: Mapping[GangUid, object],
        now: datetime,
        *,
        recorded_hold: Callable[[GangUid], RecordedHold | None] = lambda _: None,
    ) -> list[DueHold]:
        """Return the holds to be emitted now.

        changed: gangs whose status changed. groups: all gangs. recorded_hold: the hold in the status of a Gang.
        """
        for uid in changed_keys(self._groups, groups):
            if uid not in groups:
                self._forget(uid)
        self._groups = groups
        for report in changed:
            if report.hold is None or report.uid not in groups:
                self._forget(report.uid)
            else:
                self._note(report, report.hold, now, recorded_hold)
        new = [uid for uid, at in self._new.items() if at <= now]
        long = [*takewhile(lambda uid: self._long[uid] <= now, self._long)]
        for uid in new:
            del self._new[uid]
        for uid in long:
            del self._long[uid]
        due = {uid: self._due(uid, is_new=True) for uid in new}
        for uid in long:
            due[uid] = self._due(uid, is_new=uid in due, is_long=True)
        return [*due.values()]

    def _due(self, uid: GangUid, *, is_new: bool, is_long: bool = False) -> DueHold:
        """Return a hold that is due: on pods once it has lasted, or where waiting does not help."""
        report = self._held[uid][0]
        return DueHold(report=report, is_new=is_new, on_pods=is_long or report.can_never_start)

    def _note(
        self,
        report: GangReport,
        hold: Hold | Denial,
        now: datetime,
        recorded_hold: Callable[[GangUid], RecordedHold | None],
    ) -> None:
        is_passing = hold.reason in reasons.PASSING
        uid, reason = report.uid, str(hold.reason)
        message = hold.message if is_passing else reasons.without_numbers(hold.message)
        before = self._held.get(uid)
        self._held[uid] = report, reason, message
        recorded = recorded_hold(uid) if before is None else None
        if recorded is not None and recorded.reason == reason and recorded.since + SETTLED <= now:
            if not report.can_never_start and recorded.since + LONG > now:
                self._long[uid] = now + LONG
            return
        if before is None or before[1:] != (reason, message):
            self._new[uid] = now + SETTLED if is_passing else now
        if before is None or before[1] != reason:
            self._long.pop(uid, None)
            if not report.can_never_start:
                self._long[uid] = now + LONG

    def _forget(self, uid: GangUid) -> None:
        for known in (self._held, self._new, self._long):
            known.pop(uid, None)
