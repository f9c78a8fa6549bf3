"""Committing what was decided: the rows of all grants first, then claims and gates of what the ledger has taken."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from admission.accounting import books
from admission.api.muster.ledger_entries import BudgetShare, Entry, Seat
from admission.api.muster.queues import PlacementMode
from admission.api.values.names import GangUid
from admission.api.values.reasons import Hold, HoldReason
from admission.cycle import events
from admission.cycle.state.leader import CycleInputs, LeaderState
from admission.cycle.steps import ledger_sync, place
from admission.cycle.steps.place import Start
from admission.errors import BudgetTakenError, LedgerAwayError, Share
from admission.quota.budgets import Balances
from admission.scheduling.checks import budget, replacement_slots
from admission.scheduling.checks.chain import Decision, Grant
from admission.scheduling.placement import mode
from admission.workloads.gangs import Group

Granted = Mapping[GangUid, tuple[Group, Grant]]

AWAY = Hold(
    HoldReason.LEDGER_UNAVAILABLE,
    "it could start, but the ledger's database does not answer and nothing is granted without a row",
)
UNSEEN = Hold(
    HoldReason.LEDGER_UNAVAILABLE,
    "the ledger's database does not answer and nothing is granted without a row; the gang is looked at when it is back",
)
STILL_BOOKED = Hold(
    HoldReason.WAITING_FOR_CLAIMS,
    "one of its pods or claims is still booked for another gang; it waits until that one has given it back",
)


async def grant(
    desk: LeaderState, facts: CycleInputs, decisions: Sequence[Decision], balances: Balances | None
) -> list[Decision]:
    """Commit all grants, then place them in order. What the ledger does not take becomes a hold.

    balances: with the grants promised.
    """
    granted = {d.group.uid: (d.group, d.outcome) for d in decisions if isinstance(d.outcome, Grant)}
    exposed = _exposed(desk, facts, granted, balances)
    safe = {uid: pair for uid, pair in granted.items() if uid not in exposed}
    with desk.ports.traces.step("commit"):
        holds = {**exposed, **await _committed(desk, facts, safe, balances)}

    placed = [pair for uid, pair in granted.items() if uid not in holds]
    holds |= await place.place(desk, facts, [_start(desk, group, given) for group, given in placed])
    for group, given in placed:
        if group.uid not in holds:
            _fill(desk, group, given)
            await events.gang_admitted(desk.ports.reports, group, given)
    return [replace(d, outcome=holds[d.group.uid]) if d.group.uid in holds else d for d in decisions]


def _fill(desk: LeaderState, group: Group, given: Grant) -> None:
    """Forget the places of those in whose stead pods have come."""
    places = desk.vacant.get(group.uid)
    if places:
        planned = {pod.uid for pod in given.plan.pods}
        pods = [pod for pod in group.waiting if pod.meta.uid in planned]
        desk.vacant = {**desk.vacant, group.uid: replacement_slots.taken(places, pods)}


def _exposed(desk: LeaderState, facts: CycleInputs, granted: Granted, balances: Balances | None) -> dict[GangUid, Hold]:
    """Return what holds gangs that were planned with any devices, of which others may take some by now."""
    holds: dict[GangUid, Hold] = {}
    for uid, (group, given) in granted.items():
        if given.chosen.mode is not PlacementMode.ALLOCATE:
            continue
        wanted = mode.asked(group.record, facts.snapshot.queues[group.queue])
        chosen = mode.mode(wanted, given.plan.holdings, desk.protection)
        if isinstance(chosen, Hold):
            holds[uid] = chosen
        elif chosen.mode is not PlacementMode.ALLOCATE:
            holds[uid] = Hold(HoldReason.WAITING_FOR_CLAIMS, f"it is planned anew: {chosen.reason}")
        if uid in holds and balances is not None:
            balances.give_back(group.queue, given.plan.charge, budget.runtime_of(group))
    return holds


def _start(desk: LeaderState, group: Group, given: Grant) -> Start:
    waiting = {pod.meta.uid: pod for pod in group.waiting}
    gates = tuple((waiting[pod.uid], pod.node) for pod in given.plan.pods)
    return Start(group=replace(group, placement=desk.book.placements[group.uid]), gates=gates)


async def _committed(
    desk: LeaderState, facts: CycleInputs, granted: Granted, balances: Balances | None
) -> dict[GangUid, Hold]:
    """Post the reservations; return what holds those that the ledger has not taken."""
    if desk.away or balances is None:
        return dict.fromkeys(granted, AWAY)
    holds: dict[GangUid, Hold] = {}
    left = dict(granted)
    while left:
        entries = [_reservation(group, grant, desk.actor, facts.now) for group, grant in left.values()]
        try:
            refused = await ledger_sync.reserve(desk, entries, _shares(facts, left, balances))
        except LedgerAwayError:
            return dict.fromkeys(granted, AWAY)
        except BudgetTakenError as error:
            # Another cluster was quicker. Those who have nothing to do with that budget need not wait for it.
            desk.overtaken = True
            for uid in _drawing_on(facts, left, error.share):
                group, given = left.pop(uid)
                balances.give_back(group.queue, given.plan.charge, budget.runtime_of(group))
                holds[uid] = _taken(error.share)
        else:
            booked = left.keys() - {entry.gang_uid for entry in refused}
            return holds | {
                uid: STILL_BOOKED for uid in left if uid not in booked or not _is_booked(desk, uid, left[uid][1])
            }
    return holds


def _is_booked(desk: LeaderState, uid: GangUid, given: Grant) -> bool:
    """Whether the reservation is open. While time stands still, one that was given back is not made a second time."""
    placement = desk.book.placements.get(uid)
    return placement is not None and all(pod.uid in placement.seats for pod in given.plan.pods)


def _shares(facts: CycleInputs, granted: Granted, balances: Balances) -> tuple[BudgetShare, ...]:
    """Return what this cluster will have taken of the shared budgets that the grants draw on."""
    return tuple(share for share in balances.shares() if _drawing_on(facts, granted, share))


def _drawing_on(facts: CycleInputs, granted: Granted, share: Share) -> list[GangUid]:
    return [
        uid
        for uid, (group, given) in granted.items()
        if budget.draws_on(facts.tree, share, group.queue, given.plan.charge)
    ]


def _taken(share: Share) -> Hold:
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
