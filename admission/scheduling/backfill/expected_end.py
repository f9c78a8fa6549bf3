"""The gangs that hold devices in the ledger, and their expected ends.

The run time of a gang counts from when the last of its pods was started by its kubelet, or from its grant while that
has not been observed. A gang whose nodes were asked for and have not come is expected to run from when those of other
gangs of its queue came, as long after its grant. If pods of another gang use a claim of the gang, its end is unknown.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from admission.api.kubernetes.nodes import Resources
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import Queue
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.dra.metering import device_meters
from admission.dra.state.what_if import Interval
from admission.incremental import Memo, are_same
from admission.lifecycle import placement_progress
from admission.scheduling.backfill.reservations import ExpectedEnd
from admission.scheduling.checks import runtime
from admission.workloads.gangs import Group

Users = Mapping[Uid, frozenset[Uid]]
"""By claim, the pods with a slot in the ledger that use it."""


@dataclass(slots=True)
class ExpectedEnds:
    """The expected ends as last computed; one is computed again if its gang, placement or queue changed.

    One per leader. Rule: only `refresh` changes them.
    """

    _ends: Memo[GangUid, ExpectedEnd] = field(default_factory=Memo)
    _by_name: Memo[None, Mapping[str, ExpectedEnd]] = field(default_factory=Memo)
    _placed: tuple[Group | None, ...] = ()
    """The gangs of the placements, in their order, as one object while they are the same."""

    def refresh(
        self,
        placements: Mapping[GangUid, Placement],
        groups: Mapping[GangUid, Group],
        queues: Mapping[QueueName, Queue],
        users: Users,
        *,
        waits: Mapping[QueueName, timedelta],
        now: datetime,
    ) -> Mapping[str, ExpectedEnd]:
        """Return the expected ends by gang name; the same mapping as before if nothing changed. groups: all gangs.

        waits: how long gangs of each queue have waited for nodes that were asked for.
        `now` is no input of an end: that of a gang without pods is when it was first seen without them.
        """

        def by_name() -> Mapping[str, ExpectedEnd]:
            ends = []
            for (uid, placement), group in zip(placements.items(), self._placed, strict=True):
                inputs = placement, group, queues.get(placement.queue), waits.get(placement.queue)
                ends.append((placement, self._ends.get(uid, inputs, partial(_expected_end, *inputs, now))))
            self._ends.keep_only(placements)
            return _named(ends, users)

        placed = tuple(map(groups.get, placements))
        if not are_same(self._placed, placed):
            self._placed = placed
        return self._by_name.get(None, (placements, self._placed, queues, users, waits), by_name)


def _named(ends: Iterable[tuple[Placement, ExpectedEnd]], users: Users) -> Mapping[str, ExpectedEnd]:
    """Return the expected ends by name. If two gangs of one name hold devices, old and new, the end is unknown."""
    found: dict[str, ExpectedEnd] = {}
    for placement, expected_end in ends:
        other = found.get(placement.gang)
        if other is not None:
            requests = (*other.interval.requests, *expected_end.interval.requests)
            pods = other.interval.pods | expected_end.interval.pods
            interval = Interval(gang=placement.gang, requests=requests, pods=pods)
            found[placement.gang] = replace(other, interval=interval, end=None)
        elif expected_end.end is not None and _is_shared(placement, users):
            found[placement.gang] = replace(expected_end, end=None)
        else:
            found[placement.gang] = expected_end
    return found


def _expected_end(
    placement: Placement, group: Group | None, queue: Queue | None, wait: timedelta | None, now: datetime
) -> ExpectedEnd:
    interval = Interval(
        gang=placement.gang, requests=tuple(_requests(placement, group)), pods=frozenset(placement.seats)
    )
    charge = device_meters.added(holding.charge for holding in placement.holdings.values())
    if group is None or not group.pods:
        # All of its pods have ended, and its claims are about to be deallocated.
        return ExpectedEnd(interval=interval, queue=placement.queue, charge=charge, end=now)
    started = max((pod.started for pod in group.pods if pod.started is not None), default=placement.reserved_at)
    if wait is not None and placement_progress.awaits_nodes(group):
        started = max(started, placement.reserved_at + wait)
    expected = runtime.end(max(started, placement.reserved_at), runtime.declared_runtime(group, queue))
    limit = runtime.end(placement.held_since, queue.max_runtime if queue is not None else None)
    end = min((time for time in (expected, limit) if time is not None), default=None)
    return ExpectedEnd(interval=interval, queue=placement.queue, charge=charge, end=end)


def _requests(placement: Placement, group: Group | None) -> Iterator[tuple[NodeName, Resources]]:
    """Yield the nodes and requests of a gang's pods."""
    for pod in group.pods if group is not None else ():
        seat = placement.seats.get(pod.meta.uid)
        if seat is not None:
            yield pod.node or seat.node, pod.counted


def _is_shared(placement: Placement, users: Users) -> bool:
    """Return whether pods of other gangs use a claim that the gang holds."""
    return any(not users.get(uid, frozenset()) <= placement.seats.keys() for uid in placement.holdings)
