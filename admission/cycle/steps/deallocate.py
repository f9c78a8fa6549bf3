"""The deallocation of claims: of gangs that cannot start as planned, and of orphans that no booked gang waits for.

Muster allocates a claim before any pod uses it, and Kubernetes deallocates only after a pod has used it. So Muster has
to deallocate a claim that no pod came to use, and those that a dead or deposed leader left behind.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from admission.api.kubernetes.claims import Claim
from admission.api.muster.ledger_entries import Entry, Holding, Placement
from admission.api.values import names
from admission.api.values.names import Uid
from admission.api.values.reasons import Hold, HoldReason
from admission.cycle.bulk_writes import BulkWriter
from admission.cycle.state.in_flight import InFlight
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.errors import FixError, GoneError, RetryError
from admission.incremental import Derived, Inverted
from admission.lifecycle import placement_progress, transitions
from admission.lifecycle.transitions import ObservedAllocations
from admission.ports import Claims
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Deallocation:
    """Deallocates claims."""

    claims: Claims
    mirror: LedgerMirror
    in_flight: InFlight
    unreserved: Derived[str, Claim, Claim]
    claim_users: Inverted[Placement, Uid, Uid]
    writer: BulkWriter

    async def withdraw(self, inputs: CycleInputs, placement: Placement, *, keep: Collection[Uid]) -> bool:
        """Deallocate the claims of a gang, before its quota is given back; return whether that succeeded.

        keep: claims that other gangs wait for as well. Claims that pods have reserved are left as they are.
        """
        holdings = (holding for uid, holding in placement.holdings.items() if uid not in keep)
        return not await self._deallocate(list(_revocable(inputs, holdings)))

    async def safe_releases(self, inputs: CycleInputs, releases: Sequence[Entry]) -> list[Entry]:
        """Return the releases after which no write in flight can allocate devices that then count as free.

        That is certain for claims that are deleted, or had devices and lost them. The others are deallocated first;
        releases for which that fails are left to the next cycle.
        """
        planned = {entry.key: list(_revocable(inputs, self._unsettled(entry))) for entry in releases}
        claims = {claim.meta.uid: claim for found in planned.values() for claim in found}
        failed = {claim.meta.uid for claim, _ in await self._deallocate([*claims.values()])} if claims else set()
        return [entry for entry in releases if failed.isdisjoint(claim.meta.uid for claim in planned[entry.key])]

    async def collect(self, inputs: CycleInputs) -> CycleInputs:
        """Deallocate orphaned claims: Muster allocated them, and no gang with a slot waits for them there.

        A deposed leader wrote them late, their pods were deleted before any of them was bound, or the node is gone that
        had come for their pods, which are given another one. Return the inputs
        afterwards; gangs with an orphaned claim that could not be deallocated are not planned in this cycle.
        """
        orphans = self._orphans(inputs.observed)
        if not orphans or not await self.mirror.holds_epoch():
            return inputs
        failed = await self._deallocate(orphans)
        snapshot = self.in_flight.apply_to(inputs.snapshot)
        unready = dict(inputs.unready)
        for claim, error in failed:
            message = f"claim {claim.meta.key} has devices that are to be taken back before it is planned anew: {error}"
            hold = Hold(HoldReason.WAITING_FOR_CLAIMS, message, {"claim": claim.meta.key})
            unready |= dict.fromkeys((group.uid for group in inputs.groups if _uses(group, claim)), hold)
        observed = ObservedAllocations.from_snapshot(snapshot, inputs.meters)
        return replace(inputs, snapshot=snapshot, observed=observed, unready=unready)

    async def _deallocate(self, claims: Sequence[Claim]) -> list[tuple[Claim, Exception]]:
        """Deallocate claims concurrently; return those that failed, with the error, to be retried."""
        failed: list[tuple[Claim, Exception]] = []

        async def deallocate(claim: Claim) -> None:
            try:
                self.in_flight.assume_claim(await self.claims.deallocate(claim))
            except GoneError:
                return
            except (RetryError, FixError) as error:
                failed.append((claim, error))

        await self.writer.each(claims, deallocate)
        return failed

    def _unsettled(self, entry: Entry) -> Iterator[Holding]:
        """Yield the holdings that an entry gives back and that were never observed as allocated."""
        placement = self.mirror.book.placements[entry.gang_uid]
        for uid in entry.closes:
            holding = placement.holdings.get(uid)
            if holding is not None and not holding.settled:
                yield holding

    def _orphans(self, observed: ObservedAllocations) -> list[Claim]:
        self.unreserved.update(observed.snapshot.claims)
        given = self.unreserved.values
        if not given:
            return []
        book = self.mirror.book
        wanted = transitions.ClaimsInUse(self.claim_users.update(book.placements), book, observed)
        return [
            claim
            for claim in given.values()
            if claim.meta.uid not in wanted
            or any(placement_progress.is_to_move_again(seat, observed) for seat in wanted.seats(claim.meta.uid))
        ]


def _revocable(inputs: CycleInputs, holdings: Iterable[Holding]) -> Iterator[Claim]:
    """Yield the claims that are allocated and not reserved by a pod, or that a write in flight may allocate.

    An earlier leader's write may still be in flight, even if kube-scheduler picks the devices now: Muster may have
    picked them when it was sent. And what kube-scheduler has just allocated may not be observed yet.
    """
    for holding in holdings:
        claim = inputs.observed.claims.get(holding.claim_uid)
        if claim is None or _has_no_object(holding.claim_uid) or _is_in_use(claim):
            continue
        if holding.devices or claim.allocation is not None or names.PLACEMENT in claim.meta.annotations:
            yield claim


def _has_no_object(uid: Uid) -> bool:
    """Return whether there is no claim to write: kube-scheduler creates it itself, or its pod is only expected."""
    return names.is_extended_claim(uid) or names.is_expected(uid)


def _is_in_use(claim: Claim) -> bool:
    return claim.allocation is not None and bool(claim.reserved_for)


def _uses(group: Group, claim: Claim) -> bool:
    return any(
        pod.meta.namespace == claim.meta.namespace and pod.claim_name(named) == claim.meta.name
        for pod in group.waiting
        for named in pod.claims
    )
