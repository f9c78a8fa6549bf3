"""The books against the cluster, now and once more some seconds later; what differs both times is told, or fixed.

A leader may be at work meanwhile: a claim that was allocated a second ago is not in the books yet, and will be. So only
what stands through both looks counts. Each look reads the books first and the cluster afterwards, so that nothing that
is in the books is missing from a cluster that was seen before. Corrections are posted for the book that they were made
from, or not at all: when another client has written meanwhile, they are made again.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Entry, Posted
from admission.api.snapshot import Snapshot
from admission.cycle.state.pending_pods import PendingPods
from admission.dra.metering import device_meters
from admission.errors import ConflictError
from admission.lifecycle import reconciliation
from admission.lifecycle.reconciliation import Author, Difference, What
from admission.lifecycle.transitions import ObservedAllocations

ATTEMPTS = 10
"""How often corrections are made again because another client has written."""


class Books(Protocol):
    """The ledger as somebody who does not lead may use it."""

    async def load(self) -> Book:
        """Return what is open, and every balance."""
        ...

    async def amend(self, entries: Sequence[Entry], *, known: Book) -> Sequence[Posted]:
        """Record entries for this book, under the leader's epoch. Raises ConflictError when it is not the latest."""
        ...

    async def rebuild(self, note: Entry) -> Posted:
        """Make balances and what is open again from the chain, and record an entry that says so.

        Raises LedgerCorruptError when the chain is wrong, and ConflictError when others write meanwhile.
        """
        ...


class Cluster(Protocol):
    """The cluster."""

    async def now(self) -> Snapshot:
        """Return the cluster as it is when asked, or later. Raises ClusterUnavailableError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was fixed.

    differences: what was to be. posted: the entries that do so. left: what still differs.
    """

    differences: tuple[Difference, ...] = ()
    posted: tuple[tuple[Entry, Posted], ...] = ()
    left: tuple[Difference, ...] = ()


class _Observation(NamedTuple):
    book: Book
    observed: ObservedAllocations
    differences: Sequence[Difference]


async def compare(ledger: Books, cluster: Cluster, pause: Callable[[], Awaitable[None]]) -> tuple[Difference, ...]:
    """Return what differs before and after a pause."""
    first = (await _observe(ledger, cluster)).differences
    if not first:
        return ()
    await pause()
    return tuple(_among(first, (await _observe(ledger, cluster)).differences))


async def repair(
    ledger: Books, cluster: Cluster, wanted: Collection[Difference], author: Callable[[Book], Author]
) -> Outcome:
    """Post what fixes these differences, as far as they still stand. author: who says so, when, given the book.

    Raises ConflictError when others write all the time, LedgerCorruptError when no balance can be trusted, and as the
    ledger and the cluster do.
    """
    posted: list[tuple[Entry, Posted]] = []
    for _ in range(ATTEMPTS):
        refresh = await _observe(ledger, cluster)
        due = _among(wanted, refresh.differences)
        try:
            if any(one.what is What.BALANCE for one in due) and not posted:
                note = reconciliation.note(refresh.book, author(refresh.book))
                posted.append((note, await ledger.rebuild(note)))
                continue
            entries = reconciliation.corrections(refresh.book, refresh.observed, due, author(refresh.book))
            if entries:
                posted += zip(entries, await ledger.amend(entries, known=refresh.book), strict=True)
        except ConflictError:
            continue
        left = _among(wanted, (await _observe(ledger, cluster)).differences)
        return Outcome(differences=tuple(wanted), posted=tuple(posted), left=tuple(left))
    raise ConflictError("the books are written to all the time: try again, or while no controller runs")


async def _observe(ledger: Books, cluster: Cluster) -> _Observation:
    book = await ledger.load()
    snapshot = PendingPods().add_to(await cluster.now(), book)
    observed = ObservedAllocations.from_snapshot(snapshot, device_meters.compile_meters(snapshot.meters.values()))
    return _Observation(book, observed, reconciliation.differences(book, observed))


def _among(known: Collection[Difference], found: Collection[Difference]) -> list[Difference]:
    seen = set(known)
    return [one for one in found if one in seen]
