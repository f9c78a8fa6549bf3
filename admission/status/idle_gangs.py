"""Which gangs are idle: whose devices are in less use than their queues allow, by what is recorded of them."""

from collections.abc import AsyncIterable, Callable, Collection, Iterable, Mapping, Set as AbstractSet
from datetime import datetime, timedelta

from admission.accounting import recent_use
from admission.accounting.recent_use import RecentUse
from admission.api.device_use.idle import IdleAction, IdleDevices
from admission.api.muster.ledger_entries import MeasuredUsage, Placement
from admission.api.muster.queues import Queue
from admission.api.values.names import GangUid, QueueName, Uid
from admission.workloads.gangs import Group

CHECKED_FOR = timedelta(minutes=2)
"""How long it holds that a gang has not been in use since the last recorded time."""

Said = Callable[[GangUid], IdleDevices | None]
"""What the status of a gang says."""


def policies(queues: Iterable[Queue]) -> Mapping[QueueName, timedelta]:
    """Return the queues that say when a gang is idle, and for how long each allows it."""
    return {queue.name: queue.idle.after for queue in queues if queue.idle is not None}


def _says_nothing(_gang: GangUid) -> IdleDevices | None:
    return None


class IdleGangs:
    """The gangs that are idle, from rows that were recorded. One per leader.

    Rule: `read`, called once the rows of a time are complete, alone changes what is known of use; `update`, called once
    in a cycle, alone changes which gangs are idle; `confirm` alone changes which of them are idle by what they did
    since. Nothing is known of use later than `fresh` after the last time.

    records: whether anything is recorded. uncounted: the drivers whose devices do not count.
    """

    def __init__(
        self, *, records: bool = True, uncounted: Collection[str] = (), fresh: timedelta = timedelta(0)
    ) -> None:
        self.records = records
        self._uncounted = frozenset(uncounted)
        self.fresh = fresh
        self._use = RecentUse()
        self._until: datetime | None = None
        self._idle: Mapping[GangUid, IdleDevices] = {}
        self._confirmed: Mapping[GangUid, IdleDevices] = {}
        self._confirmed_at: datetime | None = None

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
        """Return how many of a row's devices count: all of a claim that the gang has no longer."""
        holding = placement.holdings.get(row.claim_uid)
        if holding is None:
            return row.devices
        return sum(one.device.driver not in self._uncounted for one in holding.devices)

    def update(
        self,
        queues: Mapping[QueueName, Queue],
        placements: Mapping[GangUid, Placement],
        now: datetime,
        said: Said = _says_nothing,
    ) -> Mapping[GangUid, IdleDevices]:
        """Return the gangs that have been idle up to now, of which something follows.

        One that was idle before for the same reason has the same value as then.
        """
        having = {name: queue for name, queue in queues.items() if queue.idle is not None}
        is_known = self._until is not None and now <= self._until + self.fresh
        found: dict[GangUid, IdleDevices] = {}
        for uid, placement in placements.items() if having and is_known else ():
            queue = having.get(placement.queue)
            idle = self._idle_of(queue, placement, said) if queue is not None else None
            if idle is not None:
                before = self._idle.get(uid)
                found[uid] = before if before == idle and before is not None else idle
        self._idle = found
        if self._confirmed_at is None or now > self._confirmed_at + CHECKED_FOR:
            return {}
        return {uid: idle for uid, idle in found.items() if _is_the_same(self._confirmed.get(uid), idle)}

    @property
    def suspects(self) -> tuple[datetime, Mapping[GangUid, IdleDevices]] | None:
        """Return the end of the last recorded time, and the idle gangs that may be evicted for it, if there are any."""
        found = {uid: idle for uid, idle in self._idle.items() if idle.policy.action is not IdleAction.REPORT}
        return (self._until, found) if self._until is not None and found else None

    def confirm(
        self,
        asked: Mapping[GangUid, IdleDevices],
        rows: Iterable[MeasuredUsage] | None,
        placements: Mapping[GangUid, Placement],
        now: datetime,
        latest: Mapping[Uid, int] | None = None,
    ) -> None:
        """Take over what suspects did since the last recorded time: idle are those of which every claim is.

        asked: the suspects that the rows are of, as they were when it was asked what they did; cycles may have run
        since, so it holds for the same queue and policy alone. rows: None if there has been no time to ask about.
        placements: as they are now; a claim without a row is in use. latest: by claim, the percentage in use at some
        time since the rows, as far as it is known.
        """
        below = None
        if rows is not None:
            below = {row.claim_uid for row in rows if self._is_below(row, asked, placements)}
        self._confirmed = {
            uid: idle
            for uid, idle in asked.items()
            if uid in placements
            and (below is None or self._counted(placements[uid]) <= below)
            and not any((latest or {}).get(claim, 0) >= idle.policy.below_percent for claim in placements[uid].holdings)
        }
        self._confirmed_at = now

    def _is_below(
        self, row: MeasuredUsage, asked: Mapping[GangUid, IdleDevices], placements: Mapping[GangUid, Placement]
    ) -> bool:
        known, placement = asked.get(row.gang_uid), placements.get(row.gang_uid)
        devices = self._devices(row, placement) if placement is not None else 0
        return (
            known is not None and devices > 0 and recent_use.percent_in_use(row, devices) < known.policy.below_percent
        )

    def _counted(self, placement: Placement) -> AbstractSet[Uid]:
        """Return the claims of a gang that have devices that count."""
        return {
            uid
            for uid, holding in placement.holdings.items()
            if any(one.device.driver not in self._uncounted for one in holding.devices)
        }

    def reported(
        self, groups: Mapping[GangUid, Group], queues: Mapping[QueueName, Queue]
    ) -> Mapping[GangUid, IdleDevices]:
        """Return the idle gangs; before anything was read, those of whose status the leader before has said so."""
        if self._until is not None or not self.records or not policies(queues.values()):
            return self._idle
        said = {uid: group.record.idle for uid, group in groups.items() if group.record is not None}
        return {
            uid: idle
            for uid, idle in said.items()
            if idle is not None and (queue := queues.get(idle.queue)) is not None and queue.idle == idle.policy
        }

    def _idle_of(self, queue: Queue, placement: Placement, said: Said) -> IdleDevices | None:
        policy, uid = queue.idle, placement.gang_uid
        use = self._use.below(uid, policy.below_percent) if policy is not None else None
        if policy is None or use is None or use.until != self._until:
            return None
        held_since = _whole_second(placement.held_since)
        since = max(use.since, held_since)
        if use.until - since < policy.after:
            return None
        # Rows are read back only as far as it has to be known.
        known = said(uid) if use.since == self._use.known_since(uid) else None
        if known is not None and (known.queue, known.policy) == (queue.name, policy):
            since = min(since, max(known.since, held_since))
        return IdleDevices(since=since, queue=queue.name, policy=policy)


def _is_the_same(confirmed: IdleDevices | None, idle: IdleDevices) -> bool:
    """Return whether a gang was confirmed to be idle by the same policy of the same queue."""
    return confirmed is not None and (confirmed.queue, confirmed.policy) == (idle.queue, idle.policy)


def _whole_second(at: datetime) -> datetime:
    """Return a time as the status has it, in whole seconds, rounded up."""
    return at.replace(microsecond=0) + timedelta(seconds=bool(at.microsecond))
