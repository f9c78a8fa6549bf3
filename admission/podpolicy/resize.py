"""Checks of a resize in place: a pod in a queue may not grow beyond what the queue has left.

What a resize adds is charged when the kubelet has given it (`Pod.taken`), whatever the quota is then, so it is held
back here. What is in use is known by the status of Gangs, which is written a moment after the ledger: a resize that is
let through by that leaves the queue over its quota, and one that is refused by it may be tried again.
"""

from collections.abc import Callable

from admission.api.muster.gangs import Charge
from admission.api.snapshot import Snapshot
from admission.api.values.names import QueueName
from admission.api.values.reasons import Denial, DenyReason
from admission.dra.metering import holdings
from admission.podpolicy.admission import Requested
from admission.podpolicy.pod_view import PodView
from admission.podpolicy.queue_limits import Limits
from admission.quota.headroom import QueueUsage, Usage


def judge(
    old: PodView, new: PodView, snapshot: Snapshot, *, limits: Limits, usage: Callable[[], Usage]
) -> Denial | None:
    """Judge a resize. usage: what the queues use now. Raises MalformedObjectError."""
    queue = snapshot.queues.get(QueueName(new.queue))
    if queue is None or not limits.counted:
        return None
    before, after = _charge(old, limits), _charge(new, limits)
    more = {meter: amount - before.get(meter, 0) for meter, amount in after.items() if amount > before.get(meter, 0)}
    if not more:
        return None
    requested = holdings.counted_of(limits.meters, holdings.of_node(new.requests()))
    denial = limits(queue, (), Requested(resources=requested))
    # A pod that still waits is charged nothing yet; its gang is judged as it will be.
    if denial is not None or new.gated:
        return denial
    shortage = QueueUsage(limits.queue_state.tree, usage()).charge_fits(queue.name, more)
    if shortage is None or shortage.meter is None:
        return None
    return Denial(
        DenyReason.OVER_QUOTA,
        f"the pod would take {shortage.needed} more {shortage.meter}, and queue {queue.name} has {shortage.left} left;"
        " try again when others of the queue have ended, ask for less, or for more quota",
        {"queue": queue.name, "meter": shortage.meter, "needed": str(shortage.needed), "left": str(shortage.left)},
    )


def _charge(pod: PodView, limits: Limits) -> Charge:
    return holdings.charge(limits.meters, holdings.of_node(pod.requests()))
