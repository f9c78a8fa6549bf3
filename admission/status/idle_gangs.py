"""Which gangs are idle: whose devices are in less use than their queues allow, by what is recorded of them."""

from collections.abc import AsyncIterable, Collection, Iterable, Mapping
from datetime import datetime, timedelta

from admission.accounting.recent_use import RecentUse
from admission.api.device_use.idle import IdleDevices
from admission.api.muster.ledger_entries import MeasuredUsage, Placement
from admission.api.muster.queues import Queue
from admission.api.values.names import GangUid, QueueName
from admission.workloads.gangs import Group


def policies(queues: Iterable[Queue]) -> tuple[frozenset[QueueName], timedelta]:
    """Return the queues that say when a gang is idle, and the longest time for which one of them allows it."""
    having = [(queue.name, queue.idle.after) for queue in queues if queue.idle is not None]
    return frozenset(name for name, _ in having), max((after for _, after in having), default=timedelta(0))


class IdleGangs:
    """The gangs that are idle, from rows that were recorded. One per leader.

    Rule: `read`, called once the rows of a time are complete, alone changes what is known of use; `update`, called once
    in a cycle, alone changes which gangs are idle. Nothing is known of use later than `fresh` after the last time.

    records: whether anything is recorded. measured: the drivers whose devices can be measured; those of others say
    nothing.
    """

    def __init__(
        self, *, records: bool = True, measured: Collection[str] = (), fresh: timedelta = timedelta(0)
    ) -> None:
        self.records = records
        self._measured = frozenset(measured)
        self.fresh = fresh
        self._use = RecentUse()
        self._until: datetime | None = None
        self._idle: Mapping[GangUid, IdleDevices] = {}

    async def read(
        self,
        rows: AsyncIterable[MeasuredUsage],
        until: datetime,
        placements: Mapping[GangUid, Placement],
        *,
        replaces: bool,
    ) -> None:
        """Take over the rows of recorded times up to `until`. replaces: whether they replace all that is known.

        placements: as they are now; of other gangs nothing is kept.
        """
        if replaces:
            use = RecentUse()
            async for row in rows:
                self._add(use, row, placements)
        else:  # all at once, since cycles run in between
            read = [row async for row in rows if row.gang_uid in placements]
            use = self._use
            for row in read:
                self._add(use, row, placements)
        use.keep(placements.keys())
        self._use, self._until = use, until

    def _add(self, use: RecentUse, row: MeasuredUsage, placements: Mapping[GangUid, Placement]) -> None:
        placement = placements.get(row.gang_uid)
        if placement is not None:
            use.add(row, self._devices(row, placement))

    def _devices(self, row: MeasuredUsage, placement: Placement) -> int:
        """Return how many of a row's devices can be measured: all of a claim that the gang has no longer."""
        holding = placement.holdings.get(row.claim_uid)
        if holding is None:
            return row.devices
        return sum(one.device.driver in self._measured for one in holding.devices)

    def update(
        self, queues: Mapping[QueueName, Queue], placements: Mapping[GangUid, Placement], now: datetime
    ) -> Mapping[GangUid, IdleDevices]:
        """Return the idle gangs. One that was idle before for the same reason has the same value as then."""
        having = {name: queue for name, queue in queues.items() if queue.idle is not None}
        is_known = self._until is not None and now <= self._until + self.fresh
        found: dict[GangUid, IdleDevices] = {}
        for uid, placement in placements.items() if having and is_known else ():
            queue = having.get(placement.queue)
            idle = self._idle_of(queue, placement) if queue is not None else None
            if idle is not None:
                before = self._idle.get(uid)
                found[uid] = before if before == idle and before is not None else idle
        self._idle = found
        return found

    def reported(
        self, groups: Mapping[GangUid, Group], queues: Mapping[QueueName, Queue]
    ) -> Mapping[GangUid, IdleDevices]:
        """Return the idle gangs; before anything was read, those of whose status the leader before has said so."""
        if self._until is not None or not self.records or not policies(queues.values())[0]:
            return self._idle
        said = {uid: group.record.idle for uid, group in groups.items() if group.record is not None}
        return {
            uid: idle
            for uid, idle in said.items()
            if idle is not None and (queue := queues.get(idle.queue)) is not None and queue.idle == idle.policy
        }

    def _idle_of(self, queue: Queue, placement: Placement) -> IdleDevices | None:
        policy = queue.idle
        use = self._use.below(placement.gang_uid, policy.below_percent) if policy is not None else None
        if policy is None or use is None or use.until != self._until:
            return None
        since = max(use.since, placement.held_since)
        if use.until - since < policy.after:
            return None
        return IdleDevices(since=since, queue=queue.name, policy=policy)
