"""Evictions of gangs that could run on: by what their queues limit, or since a user asks.

A queue may be drained, or limit how long its gangs run, or how long they leave their devices idle.

All evictions of gangs that could run on are built here. They are written to the Gang's status before any pod is
deleted, so that the next leader completes them.
"""

from collections.abc import Iterable
from datetime import datetime

from admission.api.device_use.idle import IdleAction, IdleDevices
from admission.api.muster.gang_requests import GangRequest
from admission.api.muster.gangs import Evicted
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import Queue, StopPolicy
from admission.api.values import durations
from admission.api.values.names import QueueName
from admission.api.values.reasons import EvictionReason
from admission.lifecycle import eviction
from admission.lifecycle.eviction import Eviction
from admission.lifecycle.requeue_backoff import MAX_WAIT
from admission.quota.tree import Tree
from admission.workloads.gangs import Group


def limited_queues(tree: Tree) -> frozenset[QueueName]:
    """Return the queues whose gangs may have to end; the gangs of all others need not be examined."""
    found = {name for name, queue in tree.queues.items() if queue.stop_policy is StopPolicy.HOLD_AND_DRAIN}
    for name in tree.order if found else ():
        if tree.parents.get(name) in found:
            found.add(name)
    return frozenset(found).union(name for name, queue in tree.queues.items() if _is_limited(queue))


def _is_limited(queue: Queue) -> bool:
    return queue.max_runtime is not None or (queue.idle is not None and queue.idle.action is IdleAction.EVICT)


def due_eviction(group: Group, tree: Tree, now: datetime, idle: IdleDevices | None = None) -> Eviction | None:
    """Return the eviction that a queue's limits require, if any. idle: that the gang is, by its queue."""
    placement = group.placement
    if placement is None or not placement.seats:
        return None
    drained = _drained_queue(placement, tree)
    if drained is not None:
        return eviction.build(group, EvictionReason.QUEUE_DRAINED, f"queue {drained.name} is stopped by HoldAndDrain")
    if idle is not None and idle.policy.action is IdleAction.EVICT:
        return eviction.build(group, EvictionReason.DEVICES_IDLE, idle.message)
    deadline, queue = runtime_deadline(placement, tree), tree.queues.get(placement.queue)
    if deadline is None or queue is None or queue.max_runtime is None or now < deadline:
        return None
    message = f"it ran for longer than {durations.render(queue.max_runtime)}, the maxRuntime of queue {queue.name}"
    return eviction.build(group, EvictionReason.RUNTIME_EXCEEDED, message)


def requested_eviction(group: Group, request: GangRequest) -> Eviction | None:
    """Return the eviction that a user asks for."""
    return eviction.build(group, EvictionReason.EVICTION_REQUESTED, request.text)


def resumed_eviction(group: Group, record: Evicted) -> Eviction | None:
    """Return the eviction that was decided before and is not complete yet."""
    return eviction.build(
        group, record.reason, record.message, made_room_for=record.made_room_for, references=record.references
    )


def runtime_deadline(placement: Placement, tree: Tree) -> datetime | None:
    """Return when a gang must end, counted from its first reservation; None for no limit.

    Pods that join later, as replacements or additions, do not extend it.
    """
    queue = tree.queues.get(placement.queue)
    if queue is None or queue.max_runtime is None or not placement.seats:
        return None
    return placement.held_since + min(queue.max_runtime, MAX_WAIT)


def runtime_deadlines(placements: Iterable[Placement], tree: Tree) -> list[datetime]:
    """Return when gangs must end, for those whose queue has a limit."""
    limited = {name for name, queue in tree.queues.items() if queue.max_runtime is not None}
    deadlines = (
        runtime_deadline(placement, tree) for placement in placements if limited and placement.queue in limited
    )
    return [deadline for deadline in deadlines if deadline is not None]


def _drained_queue(placement: Placement, tree: Tree) -> Queue | None:
    """Return the gang's queue, or the ancestor, that is drained."""
    path = (tree.queues.get(name) for name in tree.path(placement.queue))
    return next((queue for queue in path if queue and queue.stop_policy is StopPolicy.HOLD_AND_DRAIN), None)
