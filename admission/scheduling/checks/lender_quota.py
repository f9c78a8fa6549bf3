"""Whether a queue keeps its own quota for a gang of it that waits, instead of lending it.

As in Kueue, which reserves up to the nominal quota for a head that no preemption helps (`pkg/scheduler/scheduler.go`,
`reserveCapacityForUnreclaimablePreempt`, 2026): else others borrow again and again what is not enough for it alone, and
a gang that would fit its queue's own quota never starts.
"""

from admission.api.muster.gangs import Charge
from admission.api.muster.queues import Lending, Queue, Reclaim
from admission.api.values.reasons import Hold, HoldReason
from admission.quota.headroom import QueueUsage
from admission.workloads.gangs import Group


def may_keep(queue: Queue, needed: Charge) -> bool:
    """Return whether the queue keeps quota for gangs that need so much.

    Not for what it takes back anyway (`Reclaim.ANY`), nor for a gang that its own quota would never do for.
    """
    nominal = {quota.meter: quota.nominal for quota in queue.quotas}
    return (
        queue.lending is Lending.WHEN_IDLE
        and queue.preemption.reclaim is not Reclaim.ANY
        and all(amount <= nominal.get(meter, 0) for meter, amount in needed.items())
    )


def is_short(outcome: object) -> bool:
    """Return whether the outcome is a hold for quota."""
    return isinstance(outcome, Hold) and outcome.reason is HoldReason.QUOTA_EXCEEDED


def keep_again(group: Group, queue: Queue, needed: Charge, queue_usage: QueueUsage) -> bool:
    """Return whether a queue still keeps quota for a gang for which it did in an earlier cycle."""
    return (
        bool(group.waiting)
        and not group.runs
        and group.queue == queue.name
        and may_keep(queue, needed)
        and not queue_usage.fits(queue.name, needed)
    )
