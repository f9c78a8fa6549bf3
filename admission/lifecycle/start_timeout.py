"""The start timeout: gangs that do not run in time, counted from their grant, or that can no longer start whole."""

import sys
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement, Seat
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values import durations, names
from admission.lifecycle import placement_progress, refusals
from admission.lifecycle.eviction import Eviction
from admission.lifecycle.requeue_backoff import MAX_WAIT
from admission.lifecycle.transitions import ObservedAllocations, is_lost
from admission.workloads.gangs import Group


def allowed(queue: Queue, placement: Placement) -> timedelta:
    """Return how long a gang may take to run from its grant: longer if nodes were asked for it."""
    asked = placement_progress.asked_for(seat.as_asked for seat in placement.seats.values())
    return queue.provisioning.timeout if asked else queue.start_timeout


def eviction(
    group: Group,
    observed: ObservedAllocations,
    *,
    start_timeout: timedelta,
    now: datetime,
    begun: str = "",
    previous_size: int = sys.maxsize,
) -> Eviction | None:
    """Return the eviction of a gang, if it must be evicted. Must be called before anything of the gang is released.

    A gang is evicted if a pod disappeared before it ran, so that it cannot start whole; or if it was admitted and does
    not run in time. If as many pods run as it needs, the others may be late; with fewer, the running ones can do
    nothing. begun: why some of its pods were evicted while others could not be; the rest must not run without them.
    previous_size: its number of places when it last ran whole; it needs no more, even if it was scaled up since.
    """
    placement = group.placement
    if placement is None or not placement.seats:
        return None
    every = [pod for pod in group.pods if pod.meta.uid in placement.seats]
    # Those that join a started gang on nodes that were asked for are taken back alone (`overdue`).
    seated = [
        pod
        for pod in every
        if pod.phase != "Pending" or names.joined_at(placement.seats[pod.meta.uid].as_asked) is None
    ]
    admitted = tuple(pod for pod in every if not pod.gated)
    pending = [pod.meta.name for pod in seated if pod.phase == "Pending"]
    lost = sorted(
        seat.pod for seat in placement.seats.values() if is_lost(seat, observed) or _is_being_deleted(seat, observed)
    )
    needed = min(group.still_needed, previous_size)
    if lost and seated and len(pending) == len(seated) and len(seated) < needed:
        reason = f"pod {lost[0]} went away before the whole gang ran"
        return Eviction(group=group, pods=admitted, reason=reason, timed_out=False)
    runs = len(seated) - len(pending) >= needed
    if pending and not runs and now - _asked_since(placement, seated) >= start_timeout:
        timeout = durations.render(start_timeout)
        reason = f"{len(pending)} of {len(seated)} pods did not run within {timeout}: {_first_names(pending)}"
        failure = _missing_nodes(group, timeout)
        reason = f"{reason}; {failure}" if failure else reason
        refused = refusals.found(group, observed.snapshot, now)
        if refused:
            reason = f"{reason}; {refusals.text(refused)}"
        gated = next((pod for pod in seated if pod.phase == "Pending" and pod.other_gates), None)
        if gated is not None:
            reason = f"{reason}; pod {gated.meta.name} has the scheduling gate {gated.other_gates[0]} of others"
        return Eviction(group=group, pods=admitted, reason=reason, timed_out=True, failure=failure, refusals=refused)
    return Eviction(group=group, pods=admitted, reason=begun, timed_out=False) if begun and seated else None


def _asked_since(placement: Placement, seated: Iterable[Pod]) -> datetime:
    """Return from when the start counts of pods with a place, not of those that join the gang.

    Where nodes were asked for, it is from then: pods that have joined on nodes that are there give the others no time.
    """
    asked = (
        placement_progress.nodes_asked_at(placement.seats[pod.meta.uid], placement)
        for pod in seated
        if pod.phase == "Pending"
    )
    return min(filter(None, asked), default=placement.reserved_at)


def overdue(group: Group, timeout: timedelta, now: datetime, previous_size: int = sys.maxsize) -> tuple[Pod, ...]:
    """Return the pods whose nodes were asked for and did not come in time, of a gang that runs on without them.

    timeout: from when the nodes were asked for. previous_size: as in `eviction`.
    """
    placement = group.placement
    if placement is None:
        return ()
    late: list[Pod] = []
    for pod in group.pods:
        seat = placement.seats.get(pod.meta.uid)
        since = placement_progress.nodes_asked_at(seat, placement) if seat is not None else None
        if pod.phase == "Pending" and since is not None and now - since >= timeout:
            late.append(pod)
    running = sum(pod.phase != "Pending" for pod in group.pods if pod.meta.uid in placement.seats)
    if late and running >= min(group.still_needed, previous_size):
        return tuple(late)
    return tuple(pod for pod in late if names.joined_at(placement.seats[pod.meta.uid].as_asked) is not None)


def ends(placement: Placement, queue: Queue, snapshot: Snapshot) -> list[datetime]:
    """Return when pods of a gang are taken back that do not run by then."""
    late = {placement_progress.nodes_asked_at(seat, placement) for seat in _pending(placement, snapshot)}
    found = [since + min(queue.provisioning.timeout, MAX_WAIT) for since in late if since is not None]
    return [*found, placement.reserved_at + min(allowed(queue, placement), MAX_WAIT)] if late else []


def _pending(placement: Placement, snapshot: Snapshot) -> Iterator[Seat]:
    for uid, seat in placement.seats.items():
        pod = snapshot.pods.get(uid)
        if pod is not None and pod.phase == "Pending" and pod.meta.deleted is None:
            yield seat


def _missing_nodes(group: Group, timeout: str) -> str:
    """Return that nodes did not come which were asked for; empty if all pods are bound that wait for some."""
    seats = group.placement.seats if group.placement is not None else {}
    unbound = [pod for pod in group.pods if not pod.node and pod.meta.uid in seats]
    return missing_nodes(group, unbound, timeout)


def missing_nodes(group: Group, pods: Iterable[Pod], timeout: str) -> str:
    """Return that nodes did not come which were asked for some pods of a gang, or were no use; empty if none were."""
    seats = group.placement.seats if group.placement is not None else {}
    waiting = [seats[pod.meta.uid] for pod in pods]
    missing = placement_progress.asked_for(seat.node for seat in waiting)
    asked = missing or placement_progress.asked_for(seat.as_asked for seat in waiting)
    if not asked:
        return ""
    listed = ", ".join(placement_progress.in_words(asked))
    nodes = f"nodes that were asked for ({listed})"
    if missing:
        return f"{nodes} did not come within {timeout}, or have no room for its pods"
    return f"{nodes} came, and its pods did not run there within {timeout}"


def _is_being_deleted(seat: Seat, observed: ObservedAllocations) -> bool:
    """Whether the pod is being deleted: a finalizer may keep it for long, but it will never run."""
    pod = observed.snapshot.pods.get(seat.pod_uid)
    return pod is not None and pod.meta.deleted is not None and not pod.finished


def _first_names(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
