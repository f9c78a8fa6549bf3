"""The quota that queues keep for jobs that wait, as `scheduling.cycle` lets queues keep it for gangs.

A queue keeps from the turn of its first job that is held for quota on, and from the beginning of later rounds while
that job waits for it. The reasons are those of `checks.lender_quota`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum

from admission.api.muster.gangs import Charge
from admission.api.values.names import QueueName
from admission.quota import queue_order
from admission.quota.headroom import QueueUsage
from admission.scheduling.backfill import queue_head, reservation_refresh
from admission.scheduling.cache.verdict_cache import KINDS, QUOTA, Verdict
from admission.scheduling.checks import lender_quota
from admission.simulation.replay import arrivals
from admission.simulation.replay.arrivals import Waiting
from admission.simulation.replay.cluster import Clock

Held = tuple[Waiting, Verdict]
"""The first job of a backlog, and the verdict that holds it."""


class KeptChange(Enum):
    """What the turn of a job changes of what its queue keeps."""

    NONE = "nothing"
    MORE = "it may keep more"
    LESS = "it keeps less of some meter"


class KeptQuota:
    """What queues keep, in the quotas in use of a Clock. Only a queue beside, above or below others can."""

    def __init__(self, clock: Clock) -> None:
        tree = clock.replay_cluster.tree
        self._clock = clock
        self.lenders = frozenset(
            name
            for name in tree.order
            if (name in tree.parents or name in tree.children) and lender_quota.may_keep(tree.queues[name], {})
        )
        """The queues that may keep anything."""
        self._charges: dict[str, Charge] = {}
        """By job that waits for quota, the charge for which its queue keeps it."""
        self._reserved: set[str] = set()
        """The jobs that had a reserved start when the round began."""
        self._idle = QueueUsage(tree, {})
        self._kept_before: dict[QueueName, Waiting] = {}
        self._kept: dict[QueueName, Waiting] = {}
        """By queue, the job for which it keeps since this round; between rounds, since the last one."""
        self._passed: set[str] = set()
        """The jobs that had their turn in this round."""

    def begin(self, waits: Callable[[Waiting], bool]) -> None:
        """Begin a round: keep what was kept before for jobs that wait for it. waits: tells whether a job waits."""
        usage = self._clock.queue_usage
        usage.release_all()
        self._note_reserved()
        kept = {queue: one for queue, one in self._kept.items() if waits(one) and one.key not in self._reserved}
        for queue, waiting in kept.items():
            usage.keep(queue, self._charge(waiting))
        if kept:
            self._clock.backfill.require_proofs()
        self._kept_before, self._kept = kept, {}
        self._passed.clear()
        self._charges = {one.key: charge for one in kept.values() if (charge := self._charges.get(one.key))}

    def candidates(self, held: Iterable[Held]) -> Iterator[Waiting]:
        """Yield the jobs for which queues keep quota if they are short of it when they have their turn."""
        for waiting, verdict in held:
            if waiting.queue in self.lenders and self._may_wait(verdict) and self._may_keep(waiting):
                yield waiting

    def turn(self, waiting: Waiting, verdict: Verdict) -> KeptChange:
        """Keep quota for a held job that has its turn, if it is the first that needs that, or keep it no longer."""
        queue = waiting.queue
        if queue in self._kept or queue not in self.lenders:
            return KeptChange.NONE
        self._passed.add(waiting.key)
        known = self._kept_before.get(queue)
        before = self._charge(known) if known is not None else {}
        if self._is_short(waiting, verdict):
            if known is not waiting:
                self._clock.backfill.ensure_reservations(
                    self._clock.inputs(waiting, self._clock.queue_usage), self._charge(waiting)
                )
            self._kept[queue], after = waiting, self._charge(waiting)
        elif known is waiting:
            after = {}
        else:
            return KeptChange.NONE
        self._clock.queue_usage.keep(queue, after)
        return KeptChange.LESS if any(after.get(meter, 0) < kept for meter, kept in before.items()) else KeptChange.MORE

    def end(self, held: Iterable[Held], waits: Callable[[Waiting], bool], *, has_started: bool) -> bool:
        """End a round, and make or prove the reservations of heads; return whether others may start in the next one.

        They take what was kept in this one, or reservations fall that hold them, as these count on what is kept now.
        has_started: whether a job has started in it; else the next round is the same if it begins in the same way.
        """
        clock, before = self._clock, self._kept_before
        # A job that had its turn and was not short of quota then is decided about in the next round.
        later = [(waiting, verdict) for waiting, verdict in held if waiting.key not in self._passed]
        self._kept = self._first(later) | self._kept
        kept = [one for one in (*before.values(), *self._kept.values()) if waits(one)]
        keepers = {
            queue: (arrivals.gang_of(one), self._charge(one)) for queue, one in self._kept.items() if one in kept
        }
        revision = clock.backfill.revision
        names = reservation_refresh.refresh(
            clock.backfill, clock.rules, clock.virtual_cluster.cluster, clock.queue_usage, keepers
        )
        self._note_reserved()
        after = {queue: one for queue, one in self._kept.items() if queue in names and one.key not in self._reserved}
        left = [one for one in kept if one not in after.values()]
        is_new = bool(after.keys() - before.keys())
        has_fallen = clock.backfill.revision != revision
        self._kept = {queue: one for queue, one in self._kept.items() if queue in names}
        return has_fallen or is_new or (bool(left) and (has_started or after != before))

    def _first(self, held: Iterable[Held]) -> dict[QueueName, Waiting]:
        """Return the first job of each queue that is short of quota which the queue may keep for it."""
        found: dict[QueueName, Waiting] = {}
        for waiting, verdict in held:
            known = found.get(waiting.queue)
            is_first = known is None or queue_order.rank(waiting) < queue_order.rank(known)
            if is_first and waiting.queue in self.lenders and self._is_short(waiting, verdict):
                found[waiting.queue] = waiting
        return found

    def _is_short(self, waiting: Waiting, verdict: Verdict) -> bool:
        """Return whether a job is held for quota that its queue keeps; note for which charge."""
        if waiting.key in self._reserved:
            return False
        clock = self._clock
        if verdict.by in queue_head.WAITING and verdict.by != KINDS:
            # A cycle checks quota before devices: it would hold such a job for quota where it is short of both.
            if clock.queue_usage.fits(waiting.queue, clock.needed(waiting)):
                return False
            verdict = replace(verdict, by=QUOTA, needed=clock.needed(waiting))
        elif not lender_quota.is_short(verdict.outcome):
            return False
        inputs = clock.inputs(waiting, clock.queue_usage)
        last = self._charges.get(waiting.key, {}) if self._is_kept_for(waiting) else {}
        found = lender_quota.kept_charge(verdict, inputs, last, self._idle)
        if found is None:
            return False
        self._charges[waiting.key] = found
        return True

    def _is_kept_for(self, waiting: Waiting) -> bool:
        return waiting in (self._kept_before.get(waiting.queue), self._kept.get(waiting.queue))

    def _charge(self, waiting: Waiting) -> Charge:
        return self._charges.get(waiting.key, {})

    def _may_wait(self, verdict: Verdict) -> bool:
        return verdict.by in queue_head.WAITING or lender_quota.is_short(verdict.outcome)

    def _may_keep(self, waiting: Waiting) -> bool:
        queue = self._clock.replay_cluster.queue(waiting)
        return waiting.key not in self._reserved and lender_quota.may_keep(queue, self._clock.needed(waiting))

    def _note_reserved(self) -> None:
        found = self._clock.backfill.estimates
        self._reserved = {uid for uid, estimate in found.items() if estimate.at is not None}
