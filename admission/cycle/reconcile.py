"""The reconciliation of the ledger with the cluster: differences found twice, seconds apart, are reported or fixed.

A leader may be writing meanwhile: a claim allocated a second ago is not in the ledger yet, but will be. So only what
differs both times counts. Each time the ledger is read first and the cluster afterwards, so that the cluster is never
older than the ledger. Corrections are posted only for the book that they were made from: if another client has written
meanwhile, they are made again.
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
from admission.lifecycle.reconciliation import Author, Difference, DifferenceKind
from admission.lifecycle.transitions import ObservedAllocations

ATTEMPTS = 10
"""The most tries of a repair while other clients write."""


class Books(Protocol):
    """The ledger, for a client that does not lead."""

    async def load(self) -> Book:
        """Return the open placements and every balance."""
        ...

    async def amend(self, entries: Sequence[Entry], *, known: Book) -> Sequence[Posted]:
        """Record entries for this book, under the leader's epoch. Raises ConflictError if it is not the latest."""
        ...

    async def rebuild(self, note: Entry) -> Posted:
        """Compute balances and open placements again from the chain of entries, and record the note.

        Raises LedgerCorruptError if the chain is broken, and ConflictError if others write meanwhile.
        """
        ...


class Cluster(Protocol):
    """The cluster, read directly."""

    async def now(self) -> Snapshot:
        """Return the cluster as of the call or later. Raises ClusterUnavailableError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of a repair.

    differences: those to fix. posted: the entries that fix them. left: those that still exist.
    """

    differences: tuple[Difference, ...] = ()
    posted: tuple[tuple[Entry, Posted], ...] = ()
    left: tuple[Difference, ...] = ()


class _Observation(NamedTuple):
    book: Book
    observed: ObservedAllocations
    differences: Sequence[Difference]


async def compare(ledger: Books, cluster: Cluster, pause: Callable[[], Awaitable[None]]) -> tuple[Difference, ...]:
    """Return the differences that exist both before and after a pause."""
    first = (await _observe(ledger, cluster)).differences
    if not first:
        return ()
    await pause()
    return tuple(_among(first, (await _observe(ledger, cluster)).differences))


async def repair(
    ledger: Books, cluster: Cluster, wanted: Collection[Difference], author: Callable[[Book], Author]
) -> Outcome:
    """Post entries that fix these differences, if they still exist. author: returns author and time, given the book.

    Raises ConflictError if others write all the time, LedgerCorruptError if no balance can be trusted, and the errors
    of the ledger and the cluster.
    """
    posted: list[tuple[Entry, Posted]] = []
    for _ in range(ATTEMPTS):
        refresh = await _observe(ledger, cluster)
        due = _among(wanted, refresh.differences)
        try:
            if any(one.kind is DifferenceKind.BALANCE for one in due) and not posted:
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
