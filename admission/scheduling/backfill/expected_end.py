"""The gangs that hold devices by the books, and when they are expected to give them back.

The run time of a gang counts from when the last of its pods was started by its kubelet, or from its grant while that
has not been observed. The end of a claim that pods of several gangs use is unknown.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from admission.api.kubernetes.nodes import Resources
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import Queue
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.dra.metering import device_meters
from admission.dra.state.simulation import Interval
from admission.scheduling.backfill.reservations import ExpectedEnd
from admission.scheduling.checks import runtime
from admission.workloads.gangs import Group

Users = Mapping[Uid, frozenset[Uid]]
"""The pods with a seat that use a claim."""


class _CachedEnd(NamedTuple):
    """A expected end and what it was made of."""

    placement: Placement
    group: Group | None
    queue: Queue | None
    expected_end: ExpectedEnd


@dataclass(slots=True)
class ExpectedEnds:
    """The expected ends as they were last made: one is made again where its gang, placement or queue changed."""

    _placements: Mapping[GangUid, Placement] = field(default_factory=dict)
    _groups: tuple[Group, ...] = ()
    _queues: Mapping[QueueName, Queue] = field(default_factory=dict)
    _users: Users = field(default_factory=dict)
    _made: dict[GangUid, _CachedEnd] = field(default_factory=dict)
    _by_gang: Mapping[str, ExpectedEnd] = field(default_factory=dict)

    def refresh(
        self,
        placements: Mapping[GangUid, Placement],
        groups: tuple[Group, ...],
        queues: Mapping[QueueName, Queue],
        users: Users,
        now: datetime,
    ) -> Mapping[str, ExpectedEnd]:
        """Return the expected ends by the names of the gangs; the same mapping as before where nothing changed."""
        inputs = (placements, groups, queues, users)
        known = (self._placements, self._groups, self._queues, self._users)
        if all(one is other for one, other in zip(inputs, known, strict=True)):
            return self._by_gang
        self._placements, self._groups, self._queues, self._users = inputs
        seated = {group.uid: group for group in groups if group.placement is not None}
        before, self._made = self._made, {}
        for uid, placement in placements.items():
            group, queue, made = seated.get(uid), queues.get(placement.queue), before.get(uid)
            is_same = made is not None and made.placement is placement and made.group is group and made.queue is queue
            if made is None or not is_same:
                made = _CachedEnd(placement, group, queue, _expected_end(placement, group, queue, now))
            self._made[uid] = made
        self._by_gang = self._named()
        return self._by_gang

    def _named(self) -> Mapping[str, ExpectedEnd]:
        """Return the expected ends by name. Of two lives of a gang that have devices at once nobody knows the end."""
        found: dict[str, ExpectedEnd] = {}
        for placement, _, _, expected_end in self._made.values():
            other = found.get(placement.gang)
            if other is not None:
                requests = (*other.interval.requests, *expected_end.interval.requests)
                found[placement.gang] = replace(
                    other, interval=Interval(gang=placement.gang, requests=requests), end=None
                )
            elif expected_end.end is not None and _is_shared(placement, self._users):
                found[placement.gang] = replace(expected_end, end=None)
            else:
                found[placement.gang] = expected_end
        return found


def _expected_end(placement: Placement, group: Group | None, queue: Queue | None, now: datetime) -> ExpectedEnd:
    interval = Interval(gang=placement.gang, requests=tuple(_requests(placement, group)))
    charge = device_meters.added(holding.charge for holding in placement.holdings.values())
    if group is None or not group.pods:
        # Its pods have ended, and its claims are about to be freed.
        return ExpectedEnd(interval=interval, queue=placement.queue, charge=charge, end=now)
    started = max((pod.started for pod in group.pods if pod.started is not None), default=placement.reserved_at)
    expected = runtime.end(max(started, placement.reserved_at), runtime.declared_runtime(group, queue))
    limit = runtime.end(placement.held_since, queue.max_runtime if queue is not None else None)
    end = min((time for time in (expected, limit) if time is not None), default=None)
    return ExpectedEnd(interval=interval, queue=placement.queue, charge=charge, end=end)


def _requests(placement: Placement, group: Group | None) -> Iterator[tuple[NodeName, Resources]]:
    """Yield what the pods of a gang have of their nodes."""
    for pod in group.pods if group is not None else ():
        seat = placement.seats.get(pod.meta.uid)
        if seat is not None:
            yield pod.node or seat.node, pod.requests


def _is_shared(placement: Placement, users: Users) -> bool:
    """Return whether pods of others use what a gang holds."""
    return any(not users.get(uid, frozenset()) <= placement.seats.keys() for uid in placement.holdings)
