"""What a gang's queue has against its start, whatever devices are free: its state, its order, and its quota."""

from collections.abc import Collection
from dataclasses import replace

from admission.api.muster.queues import StopPolicy
from admission.api.snapshot import Snapshot
from admission.api.values import references
from admission.api.values.names import MeterName, QueueName
from admission.api.values.reasons import Hold, HoldReason
from admission.api.values.references import Kind, Referent
from admission.dra.requests.gang_request import Shortfall
from admission.quota.shortage import Shortage
from admission.quota.tree import Tree
from admission.workloads.gangs import Group


def inactive(queue: QueueName, tree: Tree) -> Hold | None:
    """Hold the gang while its queue is inactive."""
    problem = tree.problems.get(queue)
    if problem is None:
        return None
    return Hold(HoldReason.QUEUE_INACTIVE, problem.message, {"reason": problem.reason})


def stopped(queue: QueueName, tree: Tree) -> Hold | None:
    """Hold the gang while its queue, or one above it, is stopped."""
    for name in tree.path(queue):
        policy = tree.queues[name].stop_policy
        if policy is not StopPolicy.NONE:
            message = f"queue {name} is stopped; set its stopPolicy to None to let gangs start again"
            return Hold(HoldReason.QUEUE_STOPPED, message, {"queue": name, "stopPolicy": policy})
    return None


def unknown_meter(queue: QueueName, tree: Tree, snapshot: Snapshot) -> Hold | None:
    """Hold the gang while a quota or budget of its queues is of a Meter that does not exist.

    Its charge cannot be computed: such a Meter may count what any pod requests. It may be deleted while it is in use.
    """
    named = ((meter, name) for name in tree.path(queue) for meter in tree.queues[name].meters)
    missing = next(((meter, name) for meter, name in named if meter not in snapshot.meters), None)
    if missing is None:
        return None
    meter, name = missing
    unread = snapshot.malformed.get(("Meter", meter))
    why = f"which cannot be read ({unread}); mend it" if unread else "which does not exist; create it"
    message = f"queue {name} has a quota or budget of Meter {meter}, {why}, or take it out of the queue"
    return Hold(HoldReason.QUEUE_INACTIVE, message, {"queue": name, "meter": meter, "reason": "MeterMissing"})


def behind(queue: QueueName, gang: str) -> Hold | None:
    """Hold the gang behind an earlier one of a strict queue. gang: that one's key; empty if there is none."""
    if not gang:
        return None
    ahead = references.refer([Referent(kind=Kind.GANG, key=gang, queue=queue)], detail="behind")
    message = f"queue {queue} is StrictFIFO and {ahead.phrase} is ahead of it"
    return Hold(HoldReason.BEHIND_IN_ORDER, message, {"behind": ahead.phrase}, (ahead,))


def held_elsewhere(queue: QueueName, group: Group) -> Hold | None:
    """Hold a gang while an earlier gang of its name or workload still holds devices in another queue."""
    placement = group.placement
    if placement is None or placement.queue == queue:
        return None
    message = f"earlier pods of the gang still hold devices in queue {placement.queue}; it waits until they are gone"
    return Hold(HoldReason.WAITING_FOR_CLAIMS, message, {"queue": placement.queue})


def over_quota(found: Shortfall, open_meters: Collection[MeterName]) -> Hold:
    """Return the hold for a shortfall of quota. open_meters: those of which a plan may be charged more."""
    if isinstance(found, Shortage) and found.meter in open_meters:
        found = replace(found, is_least=True)
    return Hold(HoldReason.QUOTA_EXCEEDED, found.message, found.details)
