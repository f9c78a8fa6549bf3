"""The commit of grants: first the ledger rows of all grants, then claims and gates of those that were committed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from admission.accounting import books
from admission.api.muster.ledger_entries import BudgetShare, Entry, Seat
from admission.api.muster.queues import PlacementMode
from admission.api.values.names import GangUid
from admission.api.values.reasons import Hold, HoldReason
from admission.cycle import events
from admission.cycle.state.evictions import EvictionState
from admission.cycle.state.fences import FenceState
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.result import CycleLog
from admission.cycle.steps.place import GangPlacement, Start
from admission.errors import BudgetTakenError, LedgerUnavailableError, Share
from admission.ports import Reports, Traces
from admission.quota.budgets import Balances
from admission.scheduling.checks import budget
from admission.scheduling.checks.chain import Decision, Grant
from admission.scheduling.placement import mode
from admission.workloads.gangs import Group

Granted = Mapping[GangUid, tuple[Group, Grant]]

LEDGER_DOWN = Hold(
    HoldReason.LEDGER_UNAVAILABLE,
    "it could start, but the ledger's database does not answer and nothing is granted without a row",
)
STILL_BOOKED = Hold(
    HoldReason.WAITING_FOR_CLAIMS,
    "one of its pods or claims is still booked for another gang; it waits until that one has given it back",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantCommit:
    """Commits grants and places the committed ones."""

    reports: Reports
    traces: Traces
    mirror: LedgerMirror
    fences: FenceState
    evictions: EvictionState
    placement: GangPlacement
    log: CycleLog

    async def commit(
        self, inputs: CycleInputs, decisions: Sequence[Decision], balances: Balances | None
    ) -> list[Decision]:
        """Commit all grants, then place them in order. A grant that is not committed becomes a hold.

        balances: charged with the grants.
        """
        granted = {
            decision.group.uid: (decision.group, decision.outcome)
            for decision in decisions
            if isinstance(decision.outcome, Grant)
        }
        unprotected = self._unprotected(inputs, granted, balances)
        safe = {uid: pair for uid, pair in granted.items() if uid not in unprotected}
        with self.traces.step("commit"):
            holds = {**unprotected, **await self._committed(inputs, safe, balances)}

        placed = [pair for uid, pair in granted.items() if uid not in holds]
        holds |= await self.placement.place(inputs, [self._start(group, grant) for group, grant in placed])
        for group, grant in placed:
            if group.uid not in holds:
                planned = {pod.uid for pod in grant.plan.pods}
                self.evictions.fill(group.uid, [pod for pod in group.waiting if pod.meta.uid in planned])
                await events.gang_admitted(self.reports, group, grant)
        return [
            replace(decision, outcome=holds[decision.group.uid]) if decision.group.uid in holds else decision
            for decision in decisions
        ]

    def _unprotected(self, inputs: CycleInputs, granted: Granted, balances: Balances | None) -> dict[GangUid, Hold]:
        """Return holds for gangs that Muster was to allocate and whose devices are no longer protected."""
        holds: dict[GangUid, Hold] = {}
        for uid, (group, grant) in granted.items():
            if grant.chosen.mode is not PlacementMode.ALLOCATE:
                continue
            requested = mode.requested(group.record, inputs.snapshot.queues[group.queue])
            chosen = mode.mode(requested, grant.plan.holdings, self.fences.protections)
            if isinstance(chosen, Hold):
                holds[uid] = chosen
            elif chosen.mode is not PlacementMode.ALLOCATE:
                message = f"it is planned anew: {chosen.reason}"
                holds[uid] = Hold(HoldReason.WAITING_FOR_CLAIMS, message, references=chosen.references)
            if uid in holds and balances is not None:
                balances.give_back(group.queue, grant.plan.charge, budget.runtime_of(group))
        return holds

    def _start(self, group: Group, grant: Grant) -> Start:
        waiting = {pod.meta.uid: pod for pod in group.waiting}
        gates = tuple((waiting[pod.uid], pod.node) for pod in grant.plan.pods)
        return Start(group=replace(group, placement=self.mirror.book.placements[group.uid]), gates=gates)

    async def _committed(self, inputs: CycleInputs, granted: Granted, balances: Balances | None) -> dict[GangUid, Hold]:
        """Post the reservations; return holds for the gangs whose reservation is not committed."""
        if self.mirror.is_down or balances is None:
            return dict.fromkeys(granted, LEDGER_DOWN)
        holds: dict[GangUid, Hold] = {}
        left = dict(granted)
        while left:
            entries = [_reservation(group, grant, self.mirror.actor, inputs.now) for group, grant in left.values()]
            try:
                refused = await self.mirror.reserve(entries, _shares(inputs, left, balances))
            except LedgerUnavailableError:
                return dict.fromkeys(granted, LEDGER_DOWN)
            except BudgetTakenError as error:
                # Another cluster has used the budget. The gangs that it does not pay for are posted again.
                self.log.budget_was_taken = True
                for uid in _drawing_on(inputs, left, error.share):
                    group, grant = left.pop(uid)
                    balances.give_back(group.queue, grant.plan.charge, budget.runtime_of(group))
                    holds[uid] = _budget_taken(error.share)
            else:
                booked = left.keys() - {entry.gang_uid for entry in refused}
                return holds | {
                    uid: STILL_BOOKED for uid in left if uid not in booked or not self._is_booked(uid, left[uid][1])
                }
        return holds

    def _is_booked(self, uid: GangUid, grant: Grant) -> bool:
        """Return whether the reservation is open: one that was given back at the same instant is not."""
        placement = self.mirror.book.placements.get(uid)
        return placement is not None and all(pod.uid in placement.seats for pod in grant.plan.pods)


def _shares(inputs: CycleInputs, granted: Granted, balances: Balances) -> tuple[BudgetShare, ...]:
    """Return this cluster's use, grants included, of the shared budgets that pay for the grants."""
    return tuple(share for share in balances.shares() if _drawing_on(inputs, granted, share))


def _drawing_on(inputs: CycleInputs, granted: Granted, share: Share) -> list[GangUid]:
    return [
        uid
        for uid, (group, grant) in granted.items()
        if budget.draws_on(inputs.tree, share, group.queue, grant.plan.charge)
    ]


def _budget_taken(share: Share) -> Hold:
    message = (
        f"other clusters have just taken what was left of the budget of {share.meter} of queue {share.queue};"
        " it is tried again at once"
    )
    return Hold(HoldReason.BUDGET_EXHAUSTED, message, {"queue": share.queue, "meter": share.meter})


def _reservation(group: Group, grant: Grant, actor: str, now: datetime) -> Entry:
    size = len(grant.plan.pods)
    workload = group.identity.workload
    return books.reserve(
        gang_uid=group.uid,
        gang=group.key,
        queue=group.queue,
        seats=[
            Seat(pod_uid=pod.uid, pod=pod.pod, node=pod.node, claims=grant.claims[pod.uid]) for pod in grant.plan.pods
        ],
        holdings=grant.plan.holdings,
        at=now,
        actor=actor,
        reason=f"{size} {'pod' if size == 1 else 'pods'} can be placed together within quota",
        on_behalf_of=f"{workload.kind} {group.identity.namespace}/{workload.name}" if workload else group.key,
        user=group.user,
    )
