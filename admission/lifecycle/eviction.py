"""The eviction of a whole gang: which pods are deleted, and why."""

from dataclasses import dataclass

from admission.api.kubernetes.pods import Pod
from admission.api.values import references as references_
from admission.api.values.reasons import EvictionReason
from admission.api.values.references import EVERYWHERE, Audience, References
from admission.lifecycle.refusals import Refusals
from admission.workloads.gangs import Group

BACKING_OFF = frozenset(
    {EvictionReason.RUNTIME_EXCEEDED, EvictionReason.DEVICES_IDLE, EvictionReason.EVICTION_REQUESTED}
)
"""Causes after which a gang backs off before it is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """The eviction of a whole gang: the pods to delete, and the reason.

    timed_out: whether it backs off before it is tried again. failure: what kept it from starting, other than time.
    cause: why a gang that could run on is evicted; None for a gang that cannot start. made_room_for: the gang that
    preempts it, if any. longest: whether it backs off for as long as its queue has it wait at most, since the
    next try would hardly fare better. references: of the reason, and of the failure, which is the same if there is
    one. refusals: where kube-scheduler did not bind pods as planned.
    """

    group: Group
    pods: tuple[Pod, ...]
    reason: str
    timed_out: bool
    failure: str = ""
    cause: EvictionReason | None = None
    made_room_for: str = ""
    longest: bool = False
    references: References = ()
    refusals: Refusals = ()

    @property
    def ledger_reason(self) -> str:
        """Return the reason as the ledger records it, with all names."""
        reason = self.reason_for(EVERYWHERE)
        return f"{self.cause}: {reason}" if self.cause is not None else reason

    def reason_for(self, audience: Audience) -> str:
        """Return the reason in the words for a reader."""
        return references_.words(self.reason, self.references, audience)


def build(
    group: Group, cause: EvictionReason, reason: str, *, made_room_for: str = "", references: References = ()
) -> Eviction | None:
    """Return the eviction of a whole gang; None if no pod of it has a place any more."""
    seats = group.placement.seats if group.placement is not None else {}
    seated = [pod for pod in group.pods if pod.meta.uid in seats]
    if not seated:
        return None
    return Eviction(
        group=group,
        pods=tuple(pod for pod in seated if not pod.gated),
        reason=reason,
        timed_out=cause in BACKING_OFF,
        cause=cause,
        made_room_for=made_room_for,
        references=references,
    )
