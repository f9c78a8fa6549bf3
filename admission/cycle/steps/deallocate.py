"""Taking devices back from claims: of gangs that cannot start as planned, and those that nobody's gang has any more.

Muster gives a claim its devices before any pod uses it, and Kubernetes takes them back only when a pod has used it. So
what Muster gave in vain it has to take back itself, and what a leader has left behind that died or was deposed.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from admission.api.kubernetes.claims import Claim
from admission.api.muster.ledger_entries import Entry, Holding, Placement
from admission.api.values import names
from admission.api.values.names import Uid
from admission.api.values.reasons import Hold, HoldReason
from admission.cycle import fencing
from admission.cycle.bulk_writes import concurrently
from admission.cycle.state.leader import CycleInputs, LeaderState
from admission.errors import FixError, GoneError, RetryError
from admission.lifecycle import transitions
from admission.lifecycle.transitions import ObservedAllocations
from admission.workloads.gangs import Group


async def withdraw(desk: LeaderState, facts: CycleInputs, placement: Placement, *, keep: Collection[Uid]) -> bool:
    """Take the devices of a gang's claims back, before its quota is. Return whether that is done.

    keep: claims that others wait for as well. Those that pods have reserved stay with these.
    """
    given = (holding for uid, holding in placement.holdings.items() if uid not in keep)
    return not await deallocate(desk, list(_revocable(facts, given)))


def _revocable(facts: CycleInputs, holdings: Iterable[Holding]) -> Iterator[Claim]:
    """Yield the claims that have devices and no pod, or that somebody may be about to give devices.

    A write of an earlier leader may still be under way, also where kube-scheduler picks the devices by now: they may
    have been Muster's to give when it was sent. And what kube-scheduler has just allocated may not be seen yet.
    """
    for holding in holdings:
        claim = facts.observed.claims.get(holding.claim_uid)
        if claim is None or _is_nothing_yet(holding.claim_uid) or _is_in_use(claim):
            continue
        if holding.devices or claim.allocation is not None or names.PLACEMENT in claim.meta.annotations:
            yield claim


def _is_nothing_yet(uid: Uid) -> bool:
    """Whether no claim can be written: kube-scheduler makes it itself, or its pod is still to come."""
    return names.is_extended_claim(uid) or names.is_expected(uid)


async def secured(desk: LeaderState, facts: CycleInputs, releases: Sequence[Entry]) -> list[Entry]:
    """Return the releases of which nothing that is still under way can give a claim devices that count as free then.

    It is so at once where claims are gone, or had devices and lost them. The others are left for the next cycle.
    """
    planned = {entry.key: list(_revocable(facts, _planned(desk, entry))) for entry in releases}
    claims = {claim.meta.uid: claim for found in planned.values() for claim in found}
    failed = {claim.meta.uid for claim, _ in await deallocate(desk, [*claims.values()])} if claims else set()
    return [entry for entry in releases if failed.isdisjoint(claim.meta.uid for claim in planned[entry.key])]


def _planned(desk: LeaderState, entry: Entry) -> Iterator[Holding]:
    """Yield what an entry gives back that was never seen allocated."""
    placement = desk.book.placements[entry.gang_uid]
    for uid in entry.closes:
        holding = placement.holdings.get(uid)
        if holding is not None and not holding.settled:
            yield holding


async def deallocate(desk: LeaderState, claims: Sequence[Claim]) -> list[tuple[Claim, Exception]]:
    """Take devices back from several claims at a time; return those for which it failed, and has to be tried again."""
    failed: list[tuple[Claim, Exception]] = []

    async def take_back(claim: Claim) -> None:
        try:
            desk.assumed.note(await desk.ports.claims.deallocate(claim))
        except GoneError:
            return
        except (RetryError, FixError) as error:
            failed.append((claim, error))

    await concurrently(desk, claims, take_back)
    return failed


async def collect(desk: LeaderState, facts: CycleInputs) -> CycleInputs:
    """Take devices back from claims that Muster gave some and that no gang with a place waits for.

    A leader that did not know of its successor has written them, or their pods went away before any of them was bound.
    Return the facts as they are then; gangs whose claims keep devices so are not to be planned in this cycle.
    """
    orphans = _orphans(desk, facts.observed)
    if not orphans or not await fencing.holds(desk):
        return facts
    failed = await deallocate(desk, orphans)
    snapshot = desk.assumed.over(facts.snapshot)
    unready = dict(facts.unready)
    for claim, error in failed:
        message = f"claim {claim.meta.key} has devices that are to be taken back before it is planned anew: {error}"
        hold = Hold(HoldReason.WAITING_FOR_CLAIMS, message, {"claim": claim.meta.key})
        unready |= dict.fromkeys((group.uid for group in facts.groups if _uses(group, claim)), hold)
    return replace(facts, snapshot=snapshot, observed=ObservedAllocations.of(snapshot, facts.meters), unready=unready)


def _orphans(desk: LeaderState, observed: ObservedAllocations) -> list[Claim]:
    # Of most one look at who has reserved them is enough.
    given = [claim for claim in observed.snapshot.claims.values() if not claim.reserved_for and is_given(claim)]
    if not given:
        return []
    wanted = transitions.wanted_claims(desk.book.placements.values(), observed)
    return [claim for claim in given if claim.meta.uid not in wanted]


def is_given(claim: Claim) -> bool:
    """Whether a claim has devices that Muster gave it."""
    return claim.allocation is not None and names.PLACEMENT in claim.meta.annotations


def _is_in_use(claim: Claim) -> bool:
    return claim.allocation is not None and bool(claim.reserved_for)


def _uses(group: Group, claim: Claim) -> bool:
    return any(
        pod.meta.namespace == claim.meta.namespace and pod.claim_name(named) == claim.meta.name
        for pod in group.waiting
        for named in pod.claims
    )
