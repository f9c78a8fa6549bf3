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
from admission.quota.preemption_candidates import Candidate
from admission.scheduling.cache.verdict_cache import PROOF, QUOTA
from admission.scheduling.checks import runtime
from admission.scheduling.preemption import targets
from admission.scheduling.preemption.targets import PreemptionCandidate, PreemptionScope, PreemptionTargets
from admission.simulation.replay import arrivals
from admission.simulation.replay.arrivals import Waiting
from admission.simulation.replay.cluster import Cluster, Running
from admission.simulation.replay.queue import Muster, ReplayQueue


def happens(replayed: Cluster) -> bool:
    """Return whether any queue may preempt."""
    return any(map(targets.may_preempt, replayed.snapshot.queues.values()))


class Preempting(Muster):
    """Decides as the controller does, with preemption."""

    def settle(self, *, freed: bool) -> list[Running]:
        started = super().settle(freed=freed)
        while (found := self._ousted(started)) is not None:
            started += [found, *super().settle(freed=True)]
        return started

    def _ousted(self, started: Collection[Running]) -> Running | None:
        """Preempt for the first job for which that is possible, and start it; None if there is none."""
        updated = {id(running) for running in started}
        present = {GangUid(one.waiting.key): one for one in self._stage.running if id(one) not in updated}
        candidates = [self._tenant(running) for running in present.values()]
        self._stage.reserve.refresh(self._stage.rules, self._stage.virtual_cluster.cluster, self._stage.queue_usage)
        for line in sorted(self._lines.values(), key=lambda one: queue_order.rank(one.head)):
            for waiting in self._questions(line):
                found = self._found(line, waiting, candidates)
                if found is not None and found.victims:
                    for victim in found.victims:
                        self._evict(present[victim.uid])
                    return self._start(line, waiting, found)
        return None

    def _questions(self, line: ReplayQueue) -> Iterator[Waiting]:
        """Yield the line's first job, then later ones that would end before the reserved start of an earlier head."""
        if line.held is None or line.held.by not in {PROOF, QUOTA} or not targets.may_preempt(line.queue):
            return
        head, stage = line.head, self._stage
        yield head
        if line.queue.strategy is QueueingStrategy.STRICT_FIFO:
            return
        before = {one.head.key for one in self._lines.values() if queue_order.rank(one.head) < queue_order.rank(head)}
        times = {one.at for key, one in stage.reserve.estimates.items() if one.at is not None and key in before}
        ends = (runtime.floor_to_second(at) + runtime.SECOND - stage.time for at in sorted(times, reverse=True))
        yield from dict.fromkeys(job for end in ends if (job := line.after(head, end)) is not None)

    def _found(
        self, line: ReplayQueue, waiting: Waiting, candidates: list[PreemptionCandidate]
    ) -> PreemptionTargets | None:
        stage, needed = self._stage, line.held.needed if line.held is not None else {}
        stage.inputs(waiting, stage.queue_usage)  # adds its claims to the snapshot
        scene = PreemptionScope(
            rules=stage.rules,
            backfill=stage.reserve,
            cluster=stage.virtual_cluster.cluster,
            queue_usage=stage.queue_usage,
        )
        return targets.choose(arrivals.made(waiting), line.queue, needed, candidates, scene)

    def _evict(self, running: Running) -> None:
        self._stage.evict(running)
        self.evicted.append(running)
        self.arrive(running.waiting)

    def _start(self, line: ReplayQueue, waiting: Waiting, found: PreemptionTargets) -> Running:
        stage, plan = self._stage, found.grant.plan
        self._remove(line, waiting)
        stage.reserve.start(arrivals.made(waiting), stage.replayed.queue(waiting), plan)
        stage.charge(waiting, plan.charge)
        stage.shares.charge(waiting.queue, plan.charge)
        return stage.start(waiting, plan, plan.charge)

    def _tenant(self, running: Running) -> PreemptionCandidate:
        waiting, running_gang = running.waiting, running.running_gang
        return PreemptionCandidate(
            key=waiting.key,
            candidate=Candidate(
                uid=GangUid(waiting.key),
                queue=waiting.queue,
                priority=waiting.priority,
                reserved_at=self._stage.replayed.rules.now + running.start,
                charge=running.charge,
            ),
            belongings=Belongings(
                claims=frozenset(holder.claim for holder, _ in running_gang.uses), room=running_gang.requests
            ),
        )
