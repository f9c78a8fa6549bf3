"""The outcomes of a cycle, gang by gang, for the log and the metrics.

A held gang is decided about again in every cycle. Its outcome is reported when the hold begins and when its reason
changes, but not when only the numbers in its message do.
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
"""The kind and reason last reported of a held gang."""


class Kind(StrEnum):
    """The kind of an outcome."""

    ADMITTED = "admitted"
    HELD = "held"
    REFUSED = "refused"
    """The gang can never start as it is."""
    EVICTED = "evicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome for one gang. reason: empty if it was admitted. details: the numbers behind the message.

    pods, charge, user: of an admission. waited: since the gang was queued; None for pods that join a running gang.
    made_room_for: the gang for which it was evicted.
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
    """Selects the outcomes that are new. One per leader."""

    _reported: dict[GangUid, ReportedOutcome] = field(default_factory=dict)

    def new_outcomes(
        self,
        decisions: Iterable[Decision],
        statuses: Iterable[GangReport],
        evicted: Iterable[tuple[Group, Evicted]],
        groups: Mapping[GangUid, Group],
        now: datetime,
    ) -> tuple[Outcome, ...]:
        """Return the new outcomes of a cycle. decisions, statuses: of this cycle. groups: all gangs."""
        admitted = [_admitted(one.group, one.outcome, now) for one in decisions if isinstance(one.outcome, Grant)]
        evicted_now = [_evicted(group, what) for group, what in evicted]
        waiting = [outcome for status in statuses if (outcome := self._waiting(status)) is not None]
        if len(self._reported) > len(groups):
            self._reported = {uid: said for uid, said in self._reported.items() if uid in groups}
        return (*admitted, *evicted_now, *waiting)

    def _waiting(self, status: GangReport) -> Outcome | None:
        """Return the outcome of a held gang, unless it was reported already."""
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
