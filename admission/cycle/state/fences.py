"""The protection of drivers' devices from kube-scheduler, as last judged and as last reported."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from admission.api.kubernetes.meta import EPOCH
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid, Uid
from admission.cycle.state.term import UNCONFIRMED
from admission.scheduling.placement import protection, protection_conditions
from admission.scheduling.placement.protection import Barriers, FenceInputs, Protections
from admission.scheduling.placement.protection_conditions import Change, Watch


@dataclass(slots=True)
class FenceState:
    """The protection of devices. One per leader. Rule: `judge` alone changes what holds."""

    _protections: Protections = protection.NOTHING
    _judged_at: datetime = EPOCH
    """By the wall clock of the cycle."""
    _watch: Watch = field(default_factory=Watch)
    """The watch for allocations of fenced devices by other clients."""
    _reported: frozenset[str] = frozenset()
    """The drivers last reported as protected."""

    @property
    def protections(self) -> Protections:
        return self._protections

    @property
    def judged_at(self) -> datetime:
        return self._judged_at

    def judge(
        self,
        snapshot: Snapshot,
        placements: Mapping[GangUid, Placement],
        *,
        barriers: Barriers,
        opened: Collection[Uid],
        now: datetime,
        is_confirmed: bool,
        mismatch: str = "",
    ) -> frozenset[str]:
        """Judge the protection of devices as of now, by the wall clock; return the drivers whose fences are wanted.

        mismatch: why the cluster's kube-scheduler may decide otherwise than Muster does, if its release is not known.

        Pods show whether kube-scheduler is about to pick devices for a gang. So no protection counts before the view
        is confirmed.
        """
        booked = {uid for one in placements.values() for uid in one.holdings} if self._watch.drivers else ()
        watch = protection_conditions.observe(self._watch, snapshot, booked)
        judgement = protection.judge(
            FenceInputs(
                barriers=barriers,
                snapshot=snapshot,
                placements=placements.values(),
                now=now,
                breaches=watch.breaches,
                opened=opened,
                mismatch=mismatch,
            )
        )
        found = judgement.protections
        self._protections = found if is_confirmed else protection.later(found, UNCONFIRMED)
        self._judged_at = now
        self._watch = replace(watch, drivers=self._protections.fenced)
        return judgement.wanted

    def report_changes(self) -> Sequence[Change]:
        """Return the changes since the last call."""
        changes = [*protection_conditions.changes(self._reported, self._protections)]
        self._reported = protection_conditions.holding(self._protections)
        return changes
