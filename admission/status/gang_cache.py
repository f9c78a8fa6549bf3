"""The gangs' statuses of successive cycles: unchanged ones are neither built, summed nor written again.

`gang` alone defines a status. It is built from a gang, the decision about it, and what the leader keeps by its UID;
while all of these are the same objects, so is the status. The sums in the queues' statuses, by phase and pending
amount, are updated with every status that is built again.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, MutableSequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar

from admission.api.kubernetes.nodes import Node
from admission.api.muster.gangs import Charge, Evicted, Gang, GangReport
from admission.api.snapshot import changed
from admission.api.values.names import GangUid, NodeName, Uid
from admission.errors import MalformedObjectError
from admission.lifecycle.requeue_backoff import Backoff
from admission.scheduling.checks import faults
from admission.scheduling.checks.chain import Grant
from admission.scheduling.checks.faults import Defect, During
from admission.status import gang as status_gang
from admission.status.gang import StatusInputs
from admission.status.queue import Tally
from admission.workloads.gangs import Group

K = TypeVar("K")

NEVER = datetime.max.replace(tzinfo=UTC)

Made = tuple[Mapping[GangUid, object], ...]
"""Several mappings of inputs by gang UID."""


class _Counts:
    """How many gangs with pods there are by key, by workload, and by line.

    keys: of their Gang objects. workloads: the objects whose controllers make their pods. lines: `Identity.line`.
    """

    def __init__(self) -> None:
        self.keys: Counter[str] = Counter()
        self.workloads: Counter[Uid] = Counter()
        self.lines: Counter[str] = Counter()

    def refresh(
        self, before: Mapping[GangUid, Group], now: Mapping[GangUid, Group], touched: Collection[GangUid]
    ) -> None:
        """Update the counts of the touched gangs."""
        for groups, times in ((before, -1), (now, 1)):
            for group in (groups[uid] for uid in touched if uid in groups):
                _count(self.keys, group.key, times)
                if group.identity.workload is not None:
                    _count(self.workloads, group.identity.workload.uid, times)
                if group.identity.line:
                    _count(self.lines, group.identity.line, times)


def _count(counts: Counter[K], what: K, times: int) -> None:
    counts[what] += times
    if not counts[what]:
        del counts[what]


@dataclass(slots=True)
class GangStatusCache:
    """The statuses of the last cycle. One per leader."""

    gangs: tuple[GangReport, ...] = ()
    """Of all gangs, including those with an object but no pods, by name."""
    groups: Mapping[GangUid, Group] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    version: int = 0
    """Incremented whenever a status changes."""
    _counted: tuple[Group, ...] = ()
    _made_of: Made = ()
    _nodes: Mapping[NodeName, Node] = field(default_factory=dict)
    _malformed: Mapping[tuple[str, str], MalformedObjectError] = field(default_factory=dict)
    _records: Mapping[str, Gang] = field(default_factory=dict)
    _backoffs: Mapping[GangUid, Backoff] = field(default_factory=dict)
    _evicted: Mapping[GangUid, Evicted] = field(default_factory=dict)
    _reports: dict[GangUid, tuple[GangReport, Charge]] = field(default_factory=dict)
    _known: _Counts = field(default_factory=_Counts)
    _failed: set[GangUid] = field(default_factory=set)
    """Gangs whose status could not be built."""
    _idle: dict[str, GangReport] = field(default_factory=dict)
    _over_at: datetime = NEVER
    """When the next object in `_idle` is to be deleted."""

    def refresh(
        self,
        groups: tuple[Group, ...],
        decided: Collection[GangUid],
        facts: StatusInputs,
        found: MutableSequence[Defect],
    ) -> list[GangReport]:
        """Return the statuses that were built again. decided: gangs with another decision than before."""
        recounted = groups is not self._counted or facts.snapshot.gangs is not self._records
        readjusted = bool(changed(self._backoffs, facts.backoffs) or self._evicted != facts.evicted)
        touched = {*decided, *self._failed, *self._stirred(groups, facts)}
        changed_reports = [report for uid in touched if (report := self._make(uid, facts, found)) is not None]
        if recounted or readjusted or facts.now >= self._over_at:
            changed_reports += self._refresh_idle(facts)
            self._records, self._backoffs = facts.snapshot.gangs, dict(facts.backoffs)
            self._evicted = dict(facts.evicted)
        if changed_reports or recounted:
            reports = (*(report for report, _ in self._reports.values()), *self._idle.values())
            self.gangs = tuple(sorted(reports, key=lambda report: report.key))
            self.version += 1
        return changed_reports

    def _stirred(self, groups: tuple[Group, ...], facts: StatusInputs) -> Iterator[GangUid]:
        """Yield the gangs with changed inputs."""
        if groups is not self._counted:
            before, self._counted, self.groups = self.groups, groups, {group.uid: group for group in groups}
            touched = changed(before, self.groups)
            self._known.refresh(before, self.groups, touched)
            yield from touched
        made_of: Made = (
            facts.book.placements,
            *(dict(facts.backoffs), dict(facts.chosen), dict(facts.placement_holds)),
            *(dict(facts.evicted), dict(facts.estimates)),
        )
        for before_, now in zip(self._made_of, made_of, strict=False):
            yield from changed(before_, now)
        if self._malformed != facts.snapshot.malformed:
            yield from self.groups
        elif self._nodes is not facts.snapshot.nodes:
            yield from [uid for uid, (report, _) in self._reports.items() if report.topology is not None]
        self._made_of, self._nodes, self._malformed = made_of, facts.snapshot.nodes, facts.snapshot.malformed

    def _make(self, uid: GangUid, facts: StatusInputs, found: MutableSequence[Defect]) -> GangReport | None:
        """Build one status again."""
        before = self._reports.pop(uid, None)
        if before is not None:
            self.tally.add(*before, times=-1)
        self._failed.discard(uid)
        group = self.groups.get(uid)
        if group is None:
            return None
        report = faults.guard(During.REPORTING, group.key, lambda: status_gang.gang(group, facts), found)
        if report is None:
            self._failed.add(uid)
            return None
        decision = facts.decisions.get(uid)
        needed = {} if decision is None or isinstance(decision.outcome, Grant) else decision.needed
        self._reports[uid] = report, needed
        self.tally.add(report, needed)
        return report

    def _refresh_idle(self, facts: StatusInputs) -> list[GangReport]:
        """Return the statuses built again of Gang objects without pods."""
        known = self._known.keys
        before, self._idle, changed_reports = self._idle, {}, []
        self._over_at = NEVER
        for report in before.values():
            self.tally.add(report, {}, times=-1)
        for key, gang in facts.snapshot.gangs.items():
            if key in known:
                continue
            report, old = self._idle_report(gang, facts), before.get(key)
            self.tally.add(report, {})
            self._idle[key] = old if old is not None and old == report else report
            if self._idle[key] is report:
                changed_reports.append(report)
        return changed_reports

    def _idle_report(self, gang: Gang, facts: StatusInputs) -> GangReport:
        report = status_gang.idle(gang, facts.backoffs, facts.evicted)
        if status_gang.is_superseded(gang, self._known.workloads):
            return replace(report, over=True)
        until = status_gang.kept_until(gang, report, self._known.lines)
        if until is None:
            return report
        if facts.now >= until:
            return replace(report, over=True)
        self._over_at = min(self._over_at, until)
        return report
