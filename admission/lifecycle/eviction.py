"""The eviction of a whole gang: which pods are deleted, and why."""

from dataclasses import dataclass

from admission.api.kubernetes.pods import Pod
from admission.api.values.reasons import EvictionReason
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """The eviction of a whole gang: the pods to delete, and the reason.

    timed_out: whether it backs off before it is tried again. failure: what kept it from starting, other than time.
    cause: why a gang that could run on is evicted; None for a gang that cannot start. made_room_for: the gang that
    preempts it, if any.
    """

    group: Group
    pods: tuple[Pod, ...]
    reason: str
    timed_out: bool
    failure: str = ""
    cause: EvictionReason | None = None
    made_room_for: str = ""

    @property
    def ledger_reason(self) -> str:
        """Return the reason as the ledger records it."""
        return f"{self.cause}: {self.reason}" if self.cause is not None else self.reason


def build(group: Group, cause: EvictionReason, reason: str, *, made_room_for: str = "") -> Eviction | None:
    """Return the eviction of a whole gang; None if no pod of it has a place any more."""
    seats = group.placement.seats if group.placement is not None else {}
    seated = [pod for pod in group.pods if pod.meta.uid in seats]
    if not seated:
        return None
    return Eviction(
        group=group,
        pods=tuple(pod for pod in seated if not pod.gated),
        reason=reason,
        timed_out=cause is EvictionReason.RUNTIME_EXCEEDED,
        cause=cause,
        made_room_for=made_room_for,
    )
