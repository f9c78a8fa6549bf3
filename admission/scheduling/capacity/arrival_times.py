"""How long gangs waited for nodes that were asked for, by queue: when backfill expects others of the queue to start.

A wait is from when a gang was charged for nodes to when the last of its pods on these was started by its kubelet. It
follows from the books and the pods, so a new leader knows those of the gangs that still run; those of gangs that have
ended are known to the leader that saw them.
"""

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from admission.api.values import names
from admission.api.values.names import GangUid, QueueName
from admission.incremental import Derived
from admission.lifecycle import placement_progress
from admission.workloads.gangs import Group

MOST = 32
"""The most waits of a queue that count, of the gangs that asked last."""

CLOCKS = timedelta(minutes=1)
"""How far a kubelet's clock may be behind the ledger's time."""


class Arrival(NamedTuple):
    """Nodes of a gang have come. asked: when it was charged for them. took: until its pods on them were started."""

    queue: QueueName
    asked: datetime
    took: timedelta


@dataclass(slots=True)
class ArrivalTimes:
    """The waits of each queue's gangs, and their medians. One per leader.

    Rule: only `update` changes them; a median is the same object while it is equal.
    """

    _seen: Derived[GangUid, Group, Arrival] = field(default_factory=lambda: Derived(_arrival))
    _known: dict[QueueName, dict[tuple[GangUid, datetime], Arrival]] = field(default_factory=dict)
    """By gang and the time when it asked: for its start, and each time for pods that joined it."""
    _medians: Mapping[QueueName, timedelta] = field(default_factory=dict)

    @property
    def medians(self) -> Mapping[QueueName, timedelta]:
        """Return the median of each queue whose gangs have waited for nodes; the same object while nothing changes."""
        return self._medians

    def update(self, groups: Mapping[GangUid, Group], queues: Collection[QueueName]) -> Mapping[QueueName, timedelta]:
        """Note the gangs whose nodes have come; forget queues that are gone. groups: all gangs."""
        before = self._seen.values
        touched = False
        for uid in self._seen.update(groups):
            arrival = self._seen.values.get(uid)
            if arrival is not None and arrival != before.get(uid):
                self._note(uid, arrival)
                touched = True
        gone = self._known.keys() - set(queues)
        for queue in gone:
            del self._known[queue]
        if touched or gone:
            found = {
                queue: statistics.median_high(one.took for one in known.values())
                for queue, known in self._known.items()
            }
            if found != self._medians:
                self._medians = {
                    queue: self._medians[queue] if self._medians.get(queue) == median else median
                    for queue, median in found.items()
                }
        return self._medians

    def _note(self, uid: GangUid, arrival: Arrival) -> None:
        known = self._known.setdefault(arrival.queue, {})
        known[uid, arrival.asked] = arrival
        if len(known) > MOST:
            del known[min(known, key=lambda one: known[one].asked)]


def _arrival(_uid: GangUid, group: Group) -> Arrival | None:
    """Return how long the nodes took that a gang asked for last: for its start, or for pods that joined it."""
    to_come, placement = placement_progress.pods_to_come(group), group.placement
    if placement is None or not to_come:
        return None
    joined = {uid: names.joined_at(placement.seats[uid].as_asked) for uid in to_come}
    last = max((at for at in joined.values() if at is not None), default=None)
    started = [pod.started for pod in group.pods if pod.meta.uid in to_come and joined[pod.meta.uid] == last]
    times = [at for at in started if at is not None]
    of_start = (names.asked_at(placement.seats[uid].as_asked) for uid in to_come)
    asked = last or min(filter(None, of_start), default=placement.held_since)
    # Where only the latest reservation is known, it may be that of a pod that joined on a node that was there.
    if len(times) < sum(at == last for at in joined.values()) or asked - max(times) > CLOCKS:
        return None
    return Arrival(queue=placement.queue, asked=asked, took=max(max(times) - asked, timedelta(0)))
