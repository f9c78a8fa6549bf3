"""What is told of reservations in time: who is behind whom, and who has to end before a head starts."""

from collections.abc import Sequence
from datetime import UTC, datetime

from admission.api.muster.queues import Queue
from admission.api.values import durations
from admission.api.values.reasons import Detail, Hold, HoldReason
from admission.scheduling.backfill.reservations import Reservation
from admission.scheduling.checks import runtime as checks_runtime
from admission.workloads.gangs import Group

NAMED = 3
"""Gangs that are named in a sentence."""


def behind(group: Group, queue: Queue, bound: Sequence[Reservation]) -> Hold:
    """Hold a gang that is in the way of what is reserved for others."""
    first = min(bound, key=lambda one: one.at)
    runtime = checks_runtime.of(group, queue)
    runs = "does not say how long it runs" if runtime is None else f"would run for {durations.render(runtime)}"
    message = (
        f"{first.group.key} is ahead of it and is to start at {_text(first.at)}; this gang {runs}, "
        "and needs what is reserved for that"
    )
    details: dict[str, Detail] = {"behind": first.group.key, "until": _text(first.at)}
    return Hold(HoldReason.BEHIND_IN_ORDER, message, details)


def awaited(gangs: Sequence[str]) -> str:
    """Say when a head is to start."""
    return f"when {_names(gangs)} should have ended"


def unknown(gangs: Sequence[str]) -> str:
    """Say why nobody knows when it is."""
    return f"nobody says how long {_names(gangs)} run{'s' if len(gangs) == 1 else ''}"


def _names(gangs: Sequence[str]) -> str:
    """Name gangs: the last ones, if they are many."""
    more = len(gangs) - NAMED
    return ", ".join(gangs[-NAMED:]) + (f" and {more} more" if more > 0 else "")


def _text(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
