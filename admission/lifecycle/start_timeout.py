"""The start timeout: gangs that do not run in time, counted from their grant, or that can no longer start whole."""

import sys
from collections.abc import Iterable
from datetime import datetime, timedelta

from admission.api.muster.ledger_entries import Placement, Seat
from admission.api.muster.queues import Queue
from admission.api.values import durations
from admission.lifecycle import placement_progress, refusals
from admission.lifecycle.eviction import Eviction
from admission.lifecycle.transitions import ObservedAllocations, is_lost
from admission.workloads.gangs import Group


def allowed(queue: Queue, placement: Placement) -> timedelta:
    """Return how long a gang may take to run from its grant: longer if nodes were asked for it."""
    asked = placement_progress.asked_for(seat.node for seat in placement.seats.values())
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
    seated = [pod for pod in group.pods if pod.meta.uid in placement.seats]
    admitted = tuple(pod for pod in seated if not pod.gated)
    pending = [pod.meta.name for pod in seated if pod.phase == "Pending"]
    lost = sorted(
        seat.pod for seat in placement.seats.values() if is_lost(seat, observed) or _is_being_deleted(seat, observed)
    )
    needed = min(group.still_needed, previous_size)
    if lost and seated and len(pending) == len(seated) and len(seated) < needed:
        reason = f"pod {lost[0]} went away before the whole gang ran"
        return Eviction(group=group, pods=admitted, reason=reason, timed_out=False)
    runs = len(seated) - len(pending) >= needed
    if pending and not runs and now - placement.reserved_at >= start_timeout:
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


def _missing_nodes(group: Group, timeout: str) -> str:
    """Return that nodes did not come which were asked for; empty if all pods are bound that wait for some."""
    seats = group.placement.seats if group.placement is not None else {}
    unbound = [seats[pod.meta.uid].node for pod in group.pods if not pod.node and pod.meta.uid in seats]
    missing = placement_progress.asked_for(unbound)
    if not missing:
        return ""
    listed = ", ".join(f"{count} of shape {name}" for name, count in sorted(missing.items()))
    return f"nodes that were asked for ({listed}) did not come within {timeout}, or have no room for its pods"


def _is_being_deleted(seat: Seat, observed: ObservedAllocations) -> bool:
    """Whether the pod is being deleted: a finalizer may keep it for long, but it will never run."""
    pod = observed.snapshot.pods.get(seat.pod_uid)
    return pod is not None and pod.meta.deleted is not None and not pod.finished


def _first_names(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
