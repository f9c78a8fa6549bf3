"""The gangs' statuses of successive cycles: unchanged ones are neither built, summed nor written again.

`gang` alone defines a status. It is built from a gang, the decision about it, and what the leader keeps by its UID;
while all of these are the same objects, so is the status. The sums in the queues' statuses, by phase and pending
amount, are updated with every status that is built again.

A `Memo` for each gang would compare some eight inputs of every gang in every cycle. Here each input is one mapping
whose changes are found at once, so the cost is that of the changes; that is why dependencies are tracked by hand.
"""

import bisect
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar

from admission.api.kubernetes.nodes import Node
from admission.api.muster import gang_references
from admission.api.muster.gangs import Charge, Evicted, Gang, GangReport
from admission.api.snapshot import changed
from admission.api.values import references
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

FEW = 100
"""Statuses are put in order one by one if no more than this part of them is new."""

NEVER = datetime.max.replace(tzinfo=UTC)

InputMappings = tuple[Mapping[GangUid, object], ...]
"""Several mappings of inputs by gang UID."""


class _Counts:
    """How many gangs with pods there are by key, by workload, and by line.

    keys: of their Gang objects. workloads: the objects whose controllers make their pods. position_keys:
    `Identity.position_key`.
    """

    def __init__(self) -> None:
        self.keys: Counter[str] = Counter()
        self.workloads: Counter[Uid] = Counter()
        self.position_keys: Counter[str] = Counter()

    def refresh(
        self, before: Mapping[GangUid, Group], now: Mapping[GangUid, Group], changed_gangs: Collection[GangUid]
    ) -> None:
        """Update the counts of the touched gangs."""
        for groups, times in ((before, -1), (now, 1)):
            for group in (groups[uid] for uid in changed_gangs if uid in groups):
                _count(self.keys, group.key, times)
                if group.identity.workload is not None:
                    _count(self.workloads, group.identity.workload.uid, times)
                if group.identity.position_key:
                    _count(self.position_keys, group.identity.position_key, times)


def _may_lose_nodes(group: Group | None) -> bool:
    """Return whether the status of a gang says which of its nodes are gone that came for it."""
    placement = group.placement if group is not None and not group.is_complete else None
    return placement is not None and any(seat.asked_as for seat in placement.seats.values())


def _key(report: GangReport) -> str:
    return report.key


def _count(counts: Counter[K], key: K, times: int) -> None:
    counts[key] += times
    if not counts[key]:
        del counts[key]


@dataclass(slots=True)
class GangStatusCache:
    """The statuses of the last cycle. One per leader.

    Rule: only the methods of this class change it; the public fields are for reading.
    """

    gangs: tuple[GangReport, ...] = ()
    """Of all gangs, including those with an object but no pods, by name."""
    groups: Mapping[GangUid, Group] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    version: int = 0
    """Incremented whenever a status changes."""
    _last_inputs: InputMappings = ()
    _nodes: Mapping[NodeName, Node] = field(default_factory=dict)
    _malformed: Mapping[tuple[str, str], MalformedObjectError] = field(default_factory=dict)
    _records: Mapping[str, Gang] = field(default_factory=dict)
    _backoffs: Mapping[GangUid, Backoff] = field(default_factory=dict)
    _evicted: Mapping[GangUid, Evicted] = field(default_factory=dict)
    _reports: dict[GangUid, tuple[GangReport, Charge]] = field(default_factory=dict)
    _counts: _Counts = field(default_factory=_Counts)
    _failed: set[GangUid] = field(default_factory=set)
    """Gangs whose status could not be built."""
    _unidentified: dict[GangUid, set[str]] = field(default_factory=dict)
    """By gang whose status refers to others without a UID, these: their Gang objects were not there yet."""
    _idle: dict[str, GangReport] = field(default_factory=dict)
    _is_in_order: bool = False
    """Whether the last `refresh` came to its end, so that `gangs` has just what it built."""
    _next_deletion: datetime = NEVER
    """When the next object in `_idle` is to be deleted."""

    def refresh(
        self,
        groups: Mapping[GangUid, Group],
        decided: Collection[GangUid],
        inputs: StatusInputs,
        defects: MutableSequence[Defect],
    ) -> list[GangReport]:
        """Return the statuses that were built again. decided: gangs with another decision than before."""
        recounted = groups is not self.groups or inputs.snapshot.gangs is not self._records
        readjusted = bool(changed(self._backoffs, inputs.backoffs) or self._evicted != inputs.evicted)
        changed_gangs = {*decided, *self._failed, *self._changed_gangs(groups, inputs), *self._identifiable(inputs)}
        was_in_order, self._is_in_order = self._is_in_order, False
        gone = [self._reports[uid][0] for uid in changed_gangs if uid in self._reports]
        changed_reports = of_groups = [
            report for uid in changed_gangs if (report := self._rebuild(uid, inputs, defects)) is not None
        ]
        idle = self._idle
        if recounted or readjusted or inputs.now >= self._next_deletion:
            changed_reports = [*changed_reports, *self._refresh_idle(inputs)]
            self._records, self._backoffs = inputs.snapshot.gangs, dict(inputs.backoffs)
            self._evicted = dict(inputs.evicted)
        gone += [one for key, one in idle.items() if self._idle.get(key) is not one]
        new = [*of_groups, *(one for key, one in self._idle.items() if idle.get(key) is not one)]
        if gone or new or recounted or not was_in_order:
            self._put_in_order(gone, new, is_new=not was_in_order)
            self.version += 1
        self._is_in_order = True
        return changed_reports

    def _put_in_order(self, gone: Sequence[GangReport], new: Sequence[GangReport], *, is_new: bool) -> None:
        """Order the statuses by name. gone, new: those that were and are now among them. is_new: so are all others."""
        if is_new or len(gone) + len(new) > len(self.gangs) // FEW:
            reports = (*(report for report, _ in self._reports.values()), *self._idle.values())
            self.gangs = tuple(sorted(reports, key=_key))
            return
        ordered = [*self.gangs]
        for report in gone:
            at = bisect.bisect_left(ordered, report.key, key=_key)
            while ordered[at] is not report:  # several gangs may have one name
                at += 1
            del ordered[at]
        for report in new:
            bisect.insort(ordered, report, key=_key)
        self.gangs = tuple(ordered)

    def _changed_gangs(self, groups: Mapping[GangUid, Group], inputs: StatusInputs) -> Iterator[GangUid]:
        """Yield the gangs with changed inputs."""
        if groups is not self.groups:
            before, self.groups = self.groups, groups
            changed_gangs = changed(before, self.groups)
            self._counts.refresh(before, self.groups, changed_gangs)
            yield from changed_gangs
        current: InputMappings = (
            inputs.book.placements,
            *(dict(inputs.backoffs), dict(inputs.chosen), dict(inputs.placement_holds)),
            *(dict(inputs.evicted), dict(inputs.answered), dict(inputs.estimates), dict(inputs.later)),
            *(dict(inputs.needed), dict(inputs.idle), dict(inputs.over_memory)),
        )
        for previous, now in zip(self._last_inputs, current, strict=False):
            yield from changed(previous, now)
        if self._malformed != inputs.snapshot.malformed:
            yield from self.groups
        elif self._nodes is not inputs.snapshot.nodes:
            yield from [
                uid
                for uid, (report, _) in self._reports.items()
                if report.topology is not None or _may_lose_nodes(self.groups.get(uid))
            ]
        self._last_inputs, self._nodes, self._malformed = current, inputs.snapshot.nodes, inputs.snapshot.malformed

    def _identifiable(self, inputs: StatusInputs) -> list[GangUid]:
        """Return the gangs whose status refers to others that have a Gang object since the last cycle."""
        records = inputs.snapshot.gangs
        if not self._unidentified or records is self._records:
            return []
        new = [key for key in changed(self._records, records) if key in records and key not in self._records]
        return [uid for uid, gangs in self._unidentified.items() if not gangs.isdisjoint(new)]

    def _rebuild(self, uid: GangUid, inputs: StatusInputs, defects: MutableSequence[Defect]) -> GangReport | None:
        """Build one status again."""
        before = self._reports.pop(uid, None)
        if before is not None:
            self.tally.add(*before, times=-1)
        self._failed.discard(uid)
        self._unidentified.pop(uid, None)
        group = self.groups.get(uid)
        if group is None:
            return None
        report = faults.guard(During.REPORTING, group.key, lambda: status_gang.gang(group, inputs), defects)
        if report is None:
            self._failed.add(uid)
            return None
        decision = inputs.decisions.get(uid)
        needed = {} if decision is None or isinstance(decision.outcome, Grant) else decision.needed
        self._reports[uid] = report, needed
        unidentified = references.unidentified(gang_references.references_of(report))
        if unidentified:
            self._unidentified[uid] = unidentified
        self.tally.add(report, needed)
        return report

    def _refresh_idle(self, inputs: StatusInputs) -> list[GangReport]:
        """Return the statuses built again of Gang objects without pods."""
        with_pods = self._counts.keys
        before, self._idle, changed_reports = self._idle, {}, []
        self._next_deletion = NEVER
        for report in before.values():
            self.tally.add(report, {}, times=-1)
        for key, gang in inputs.snapshot.gangs.items():
            if key in with_pods:
                continue
            report, old = self._idle_report(gang, inputs), before.get(key)
            self.tally.add(report, {})
            self._idle[key] = old if old is not None and old == report else report
            if self._idle[key] is report:
                changed_reports.append(report)
        return changed_reports

    def _idle_report(self, gang: Gang, inputs: StatusInputs) -> GangReport:
        report = status_gang.with_uids(status_gang.idle(gang, inputs.backoffs, inputs.evicted, inputs.answered), inputs)
        if status_gang.is_superseded(gang, self._counts.workloads):
            return replace(report, over=True)
        until = status_gang.kept_until(gang, report, self._counts.position_keys)
        if until is None:
            return report
        if inputs.now >= until:
            return replace(report, over=True)
        self._next_deletion = min(self._next_deletion, until)
        return report
