"""What a cycle has decided, gang by gang: told once, for the log and for those who count.

A gang that waits for a reason is decided about again in every cycle. That is told when it begins and when the reason
changes; a sentence whose numbers move all the time is not told again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from admission.api.muster.gangs import Charge, Evicted, GangReport
from admission.api.values.names import GangUid, QueueName
from admission.api.values.reasons import Denial, Detail
from admission.scheduling.checks.chain import Decision, Grant
from admission.workloads.gangs import Group

ReportedOutcome = tuple["Kind", str]
"""What was last told of a gang that waits: kind and reason."""


class Kind(StrEnum):
    """What was decided."""

    ADMITTED = "admitted"
    HELD = "held"
    REFUSED = "refused"
    """It can never start as it is."""
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was decided of one gang. reason: empty where it was admitted. details: the numbers behind it.

    pods, charge, user: of those that were admitted. waited: since the gang has queued; None for pods that come to a
    gang that runs already. made_room_for: the gang for which it was evicted.
    """

    kind: Kind
    gang: str
    """`namespace/name`."""
    uid: GangUid
    queue: QueueName
    reason: str = ""
    message: str = ""
    details: Mapping[str, Detail] = field(default_factory=dict)
    pods: int = 0
    charge: Charge = field(default_factory=dict)
    user: str = ""
    waited: timedelta | None = None
    made_room_for: str = ""


@dataclass(slots=True)
class OutcomeLog:
    """Tells what was decided. One per leader."""

    _reported: dict[GangUid, ReportedOutcome] = field(default_factory=dict)

    def new_outcomes(
        self,
        decisions: Iterable[Decision],
        statuses: Iterable[GangReport],
        evicted: Iterable[tuple[Group, Evicted]],
        groups: Mapping[GangUid, Group],
        now: datetime,
    ) -> tuple[Outcome, ...]:
        """Return what is to be told of a cycle. decisions, statuses: those made in it; groups: all gangs."""
        admitted = [_admitted(one.group, one.outcome, now) for one in decisions if isinstance(one.outcome, Grant)]
        evicted_now = [_evicted(group, what) for group, what in evicted]
        waiting = [outcome for status in statuses if (outcome := self._waiting(status)) is not None]
        if len(self._reported) > len(groups):
            self._reported = {uid: said for uid, said in self._reported.items() if uid in groups}
        return (*admitted, *evicted_now, *waiting)

    def _waiting(self, status: GangReport) -> Outcome | None:
        """Return why a gang waits, unless that was told already."""
        hold = status.hold
        if hold is None:
            self._reported.pop(status.uid, None)
            return None
        kind = Kind.REFUSED if isinstance(hold, Denial) else Kind.HELD
        if self._reported.get(status.uid) == (kind, hold.reason):
            return None
        self._reported[status.uid] = kind, hold.reason
        return Outcome(
            kind=kind,
            gang=status.key,
            uid=status.uid,
            queue=status.queue,
            reason=hold.reason,
            message=hold.message,
            details=hold.details,
        )


def _admitted(group: Group, grant: Grant, now: datetime) -> Outcome:
    return Outcome(
        kind=Kind.ADMITTED,
        gang=group.key,
        uid=group.uid,
        queue=group.queue,
        message=grant.chosen.reason,
        pods=len(grant.plan.pods),
        charge=grant.plan.charge,
        user=group.user,
        waited=None if group.started else max(timedelta(0), now - group.first_queued),
    )


def _evicted(group: Group, what: Evicted) -> Outcome:
    return Outcome(
        kind=Kind.EVICTED,
        gang=group.key,
        uid=group.uid,
        queue=group.queue,
        reason=what.reason,
        message=what.message,
        made_room_for=what.made_room_for,
    )
