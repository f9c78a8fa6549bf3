"""The head of a queue: the gang for which backfill reserves."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from admission.api.muster.queues import Queue, QueueingStrategy
from admission.api.values.names import GangUid, QueueName
from admission.api.values.reasons import Hold, HoldReason
from admission.dra.requests.gang_request import anything
from admission.quota.queue_order import Order
from admission.scheduling.backfill.reservations import Estimate, Reservation
from admission.scheduling.backfill.running_gangs import RunningGangs
from admission.scheduling.cache.verdict_cache import KINDS, PROOF, QUOTA, RESERVED, Verdict
from admission.scheduling.checks.chain import Inputs
from admission.scheduling.placement.proposal import Proved
from admission.workloads.gangs import Group

SOONER = timedelta(seconds=10)
"""How long a reservation stands although a gang ended sooner than expected, which may allow an earlier one."""

WAITING = frozenset({PROOF, QUOTA, RESERVED, KINDS})
"""The sources of verdicts that hold gangs until others end."""

NEVER = -1
"""No state of the running gangs."""


@dataclass(slots=True, kw_only=True, eq=False)
class QueueHead:
    """The first gang of a queue that waits for others to end.

    is_old: whether a gang has ended sooner than the reservation expects. tried: `changes` when none was found.
    """

    group: Group
    queue: Queue
    reservation: Reservation | None = None
    made: datetime | None = None
    is_old: bool = False
    tried: int = NEVER

    def may_start_sooner(self, present: RunningGangs) -> bool:
        """Return whether the reservation has to be recomputed, since it may begin sooner."""
        if self.reservation is None or self.made is None:
            return False
        self.is_old |= present.is_sooner(self.made)
        return self.is_old and present.now - self.made >= SOONER

    def inputs_of(self, inputs: Inputs) -> Inputs:
        """Return the inputs of the head, given those of any gang, whose condition on the charge is not the head's."""
        known = inputs.known if inputs.group is self.group else None
        return replace(inputs, group=self.group, queue=self.queue, known=known, blocked_by="", allows=anything)

    def is_behind(self, group: Group, order: Order) -> bool:
        """Return whether a strict queue orders the head after another gang, so that it is no head while that waits."""
        return self.queue.strategy is QueueingStrategy.STRICT_FIFO and order.rank(group) < order.rank(self.group)


def unknown_start(
    verdict: Verdict, known: tuple[GangUid, Estimate] | None, present: RunningGangs
) -> dict[QueueName, tuple[GangUid, Estimate]]:
    """Return by queue its first gang, and why its start cannot be computed; empty if that is not to be recorded.

    known: what is recorded for the queue.
    """
    uid, estimate = verdict.group.uid, present.unknown()
    if estimate is None or verdict.outcome.reason not in {HoldReason.DEVICES_BUSY, HoldReason.QUOTA_EXCEEDED}:
        return {}
    is_new = known is None or (known[0] == uid and known[1] != estimate)
    return {verdict.group.queue: (uid, estimate)} if is_new else {}


def waits(verdict: Verdict) -> bool:
    """Return whether a verdict holds a gang until others end."""
    if not isinstance(verdict.outcome, Hold):
        return False
    # Proofs about gangs with volumes or extended resources are not kept: they depend on particular objects.
    is_proved = verdict.by in WAITING or isinstance(verdict.outcome, Proved)
    return is_proved or bool(verdict.bound) or verdict.outcome.reason is HoldReason.QUOTA_EXCEEDED
