"""Preemption in a replay: the jobs that are evicted for a held job, by the controller's rules.

Time advances in jumps, so there is no grace period: victims release their devices at once, and the preempting job
starts at the same moment. A victim waits again in its old place, and starts over. What runs from the beginning is not
evicted.
"""

from collections.abc import Collection, Iterator

from admission.api.muster.queues import QueueingStrategy
from admission.api.values.names import GangUid
from admission.dra.state.what_if import Belongings
from admission.quota import queue_order
from admission.quota.preemption_rules import Candidate
from admission.scheduling.cache.verdict_cache import KINDS, PROOF, QUOTA
from admission.scheduling.checks import runtime
from admission.scheduling.preemption import targets
from admission.scheduling.preemption.targets import PreemptionCandidate, PreemptionScope, PreemptionTargets
from admission.simulation.replay import arrivals
from admission.simulation.replay.arrivals import Waiting
from admission.simulation.replay.backlog import ReplayQueue
from admission.simulation.replay.cluster import ReplayCluster, Running
from admission.simulation.replay.queue import Muster


def is_possible(replay_cluster: ReplayCluster) -> bool:
    """Return whether any queue may preempt."""
    return any(map(targets.may_preempt, replay_cluster.snapshot.queues.values()))


class Preempting(Muster):
    """Decides as the controller does, with preemption."""

    def settle(self, *, freed: bool) -> list[Running]:
        started = super().settle(freed=freed)
        while (preempted := self._preempt_once(started)) is not None:
            started += [preempted, *super().settle(freed=True)]
        return started

    def _preempt_once(self, started: Collection[Running]) -> Running | None:
        """Preempt for the first job for which that is possible, and start it; None if there is none."""
        just_started = {id(running) for running in started}
        running_by_uid = {GangUid(one.waiting.key): one for one in self._clock.running if id(one) not in just_started}
        candidates = [self._candidate(running) for running in running_by_uid.values()]
        for backlog in sorted(self._backlogs.values(), key=lambda one: queue_order.rank(one.head)):
            for waiting in self._preemptors(backlog):
                chosen = self._targets(backlog, waiting, candidates)
                if chosen is not None and chosen.victims:
                    for victim in chosen.victims:
                        running_by_uid[victim.uid].waiting.was_reclaimed = victim.queue != waiting.queue
                        self._evict(running_by_uid[victim.uid])
                    return self._start(backlog, waiting, chosen)
        return None

    def _preemptors(self, backlog: ReplayQueue) -> Iterator[Waiting]:
        """Yield the first job, then later ones that would end before the reserved start of an earlier head."""
        if (
            backlog.head_verdict is None
            or backlog.head_verdict.by not in {PROOF, QUOTA, KINDS}
            or not targets.may_preempt(backlog.queue)
        ):
            return
        head, clock = backlog.head, self._clock
        yield head
        if backlog.queue.strategy is QueueingStrategy.STRICT_FIFO:
            return
        before = {
            one.head.key for one in self._backlogs.values() if queue_order.rank(one.head) < queue_order.rank(head)
        }
        times = {one.at for key, one in clock.backfill.estimates.items() if one.at is not None and key in before}
        ends = (runtime.floor_to_second(at) + runtime.SECOND - clock.time for at in sorted(times, reverse=True))
        yield from dict.fromkeys(job for end in ends if (job := backlog.next_behind(head, end)) is not None)

    def _targets(
        self, backlog: ReplayQueue, waiting: Waiting, candidates: list[PreemptionCandidate]
    ) -> PreemptionTargets | None:
        clock, needed = self._clock, backlog.head_verdict.needed if backlog.head_verdict is not None else {}
        clock.inputs(waiting, clock.queue_usage)  # adds its claims to the snapshot
        scope = PreemptionScope(
            rules=clock.rules,
            backfill=clock.backfill,
            cluster=clock.virtual_cluster.cluster,
            queue_usage=clock.queue_usage,
        )
        return targets.choose(
            arrivals.gang_of(waiting), backlog.queue, needed, candidates, scope, was_reclaimed=waiting.was_reclaimed
        )

    def _evict(self, running: Running) -> None:
        self._clock.evict(running)
        self.evicted.append(running)
        self.arrive(running.waiting)

    def _start(self, backlog: ReplayQueue, waiting: Waiting, chosen: PreemptionTargets) -> Running:
        clock, plan = self._clock, chosen.grant.plan
        self._remove(backlog, waiting)
        clock.backfill.start(arrivals.gang_of(waiting), clock.replay_cluster.queue(waiting), plan)
        clock.charge(waiting, plan.charge)
        clock.shares.charge(waiting.queue, plan.charge)
        return clock.start(waiting, plan, plan.charge)

    def _candidate(self, running: Running) -> PreemptionCandidate:
        waiting, running_gang = running.waiting, running.running_gang
        return PreemptionCandidate(
            key=waiting.key,
            candidate=Candidate(
                uid=GangUid(waiting.key),
                queue=waiting.queue,
                priority=waiting.priority,
                reserved_at=self._clock.replay_cluster.rules.now + running.start,
                queued_since=waiting.queued_since,
                charge=running.charge,
            ),
            belongings=Belongings(
                claims=frozenset(holder.claim for holder, _ in running_gang.uses), room=running_gang.requests
            ),
        )
