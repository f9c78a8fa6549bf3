"""The signature of a leader under the end of its chain, once the chain is checked against what the leader knows of it.

A leader knows the kept heads, the digests of its own writes, and which transactions it wrote. It signs only a chain
that passes through all of these, and lists in its heads the transactions of other clients (*foreign* ones).
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from admission.api.muster.ledger_entries import ChainEnd, Entry, Kind
from admission.controller.own_writes import OwnWrites
from admission.errors import ConflictError, DeposedError, LedgerCorruptError
from admission.heads import head_document, key_history, retention, signed_head
from admission.heads.key_history import KeyRing, PublicKey
from admission.heads.signed_head import Cause, Head, Range, SignedHead
from admission.ports import Chain, EntryStore

log = structlog.get_logger()

IDLE = timedelta(minutes=15)
"""After this time a head is signed even if nothing was written, to show that the chain still has the same end."""

TRIES = 20
TRY_SECONDS = 0.05
"""How often, and after which pause, the end is read again while the leader writes."""

MOST_READ = 2_000
"""The most foreign entries that are read and listed for one head; of the others only the places are known."""

Foreign = tuple[int, Entry]
"""The place of an entry that another client wrote, and the entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningSettings:
    """cluster: its name in the ledger. interval: the least time between two heads of growth; lifetime: of a key."""

    cluster: str
    interval: timedelta = timedelta(minutes=1)
    lifetime: timedelta = timedelta(days=90)


class _Known(NamedTuple):
    """A digest that the chain must have at a place, and the source of that requirement."""

    sequence: int
    digest: str
    source: str


@dataclass(slots=True, kw_only=True)
class HeadSigner:
    """Signs heads during one term.

    Rule: `kept` holds every head that this process has read or signed and that is still kept, and no head is signed of
    a chain that does not pass through the newest of them.
    """

    chain: Chain
    writes: OwnWrites
    keys: EntryStore
    """The Secret with the keys."""
    settings: SigningSettings
    clock: Callable[[], datetime]
    kept: list[SignedHead] = field(default_factory=list)
    public: tuple[PublicKey, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    """The foreign entries that the latest check found, but for closings, as far as they were read."""
    foreign_count: int = 0
    """Their number, including those that were not read."""
    _ring: KeyRing | None = None
    _marked: bool = False
    """Whether a usage entry was written since the latest head."""
    _since: int | None = None
    """The place after which every foreign transaction is of this term; None before the first head."""

    def begin(self, kept: head_document.KeptHeads) -> None:
        """Take over what earlier leaders have published."""
        self.kept = retention.retained((*kept.heads, *self.kept), now=self.clock())
        self.public = kept.keys

    def is_due(self) -> bool:
        """Return whether to try to sign now. No I/O."""
        newest = self._newest
        if self._since is None or newest is None or self.writes.has_marked or self.writes.has_read:
            return True
        age = self.clock() - newest.at
        return age >= IDLE or (self.writes.has_written and age >= self.settings.interval)

    async def sign(self, epoch: int) -> SignedHead | None:
        """Sign the end of the chain; None if it was signed already.

        Raises LedgerCorruptError if the chain does not pass through what is known of it, DeposedError if a later
        leader has begun, RetryError, and FixError if the keys cannot be read.
        """
        self._marked |= self.writes.has_marked
        # Reset before the end is read, so that later writes set it again.
        self.writes.has_written = self.writes.has_marked = self.writes.has_read = False
        try:
            return await self._sign(epoch)
        except Exception:
            self.writes.has_read = True  # so that it is tried again
            raise

    async def _sign(self, epoch: int) -> SignedHead | None:
        end = await self._checked_end(epoch)
        newest = self._newest
        entries, ranges = await self._foreign(end, epoch)
        closings = self._note_foreign(entries, ranges)
        if self._since is not None and newest is not None and not ranges:
            age = self.clock() - newest.at
            if newest.sequence == end.sequence and age < IDLE:
                return None
            if not self._marked and age < self.settings.interval:
                self.writes.has_written = True  # so that it is signed later
                return None
        cause = self._cause(ranges, closings=closings)
        await self._refresh_keys()
        assert self._ring is not None  # noqa: S101 - just made
        head = Head(
            cluster=self.settings.cluster,
            epoch=epoch,
            sequence=end.sequence,
            digest=end.digest,
            at=self.clock(),
            cause=cause,
            foreign=signed_head.capped(ranges),
        )
        signed = key_history.sign(head, self._ring)
        self.kept = retention.retained((*self.kept, signed), now=head.at)
        self._since, self._marked = end.sequence, False
        self.writes.forget_before(end.sequence)
        return signed

    async def check_ended_term(self, epoch: int) -> None:
        """Find what other clients wrote during this term, which ended without another head. Raises as `sign`."""
        if self._since is None:
            return
        end = await self._settled_end()
        beyond = await self.chain.first_of(epoch + 1, after=self._since)
        last = end.sequence if beyond is None else beyond - 1
        self._note_foreign(*await self._foreign(replace(end, sequence=last), epoch))

    @property
    def _newest(self) -> Head | None:
        own = (signed.head for signed in self.kept if signed.head.cluster == self.settings.cluster)
        return max(own, key=lambda head: head.position, default=None)

    async def _checked_end(self, epoch: int) -> ChainEnd:
        """Return the end of the chain, which passes through all that is known."""
        thorough = self._marked or self._since is None
        for is_last in (False, True):
            end = await self._settled_end()
            if end.epoch > epoch:
                raise DeposedError(f"epoch {epoch} is over: the ledger has epoch {end.epoch}")
            try:
                await self._check(end, thorough=thorough)
            except LedgerCorruptError:
                # Rows may have been archived between the two reads.
                if is_last:
                    raise
            else:
                return end
        raise AssertionError("the last try returns or raises")

    async def _settled_end(self) -> ChainEnd:
        """Return the end of the chain at a moment at which no own write is in flight."""
        for _ in range(TRIES):
            version = self.writes.version
            if version is not None:
                end = await self.chain.end()
                if self.writes.version == version:
                    return end
            await asyncio.sleep(TRY_SECONDS)
        raise ConflictError("the leader writes all the time; its head is signed later")

    async def _check(self, end: ChainEnd, *, thorough: bool) -> None:
        """Raise LedgerCorruptError if the chain does not pass through the heads and own writes that are known."""
        newest = self._newest
        known = [*self._known(thorough=thorough), _Known(end.sequence, end.digest, "the stored end of the chain")]
        found = await self.chain.digests({one.sequence for one in known})
        for one in known:
            digest = found.get(one.sequence)
            if digest == one.digest:
                continue
            if digest is None and one.sequence < end.closed and newest is not None and one.sequence < newest.sequence:
                continue
            raise LedgerCorruptError(_difference(one, digest, end))

    def _known(self, *, thorough: bool) -> Iterable[_Known]:
        newest = self._newest
        for head in (signed.head for signed in self.kept if signed.head.cluster == self.settings.cluster):
            if thorough or head is newest:
                source = f"the head of {signed_head.instant(head.at)}"
                yield _Known(head.sequence, head.digest, source)
        last = self.writes.last
        if last is not None:
            yield _Known(*last, "what this leader has written")

    async def _foreign(self, end: ChainEnd, epoch: int) -> tuple[tuple[Foreign, ...], list[Range]]:
        """Return the foreign entries since the previous head, and their places.

        Before the first head: those that were written under this leader's epoch by another client. Entries of earlier
        epochs cannot be attributed by a process that was not the leader then.
        """
        since = self._since
        if since is None:
            newest = self._newest
            after = max(end.closed, 0 if newest is None else newest.sequence)
            first = await self.chain.first_of(epoch, after=after)
            since = end.sequence if first is None else first - 1
        named: list[Foreign] = []
        found: list[Range] = []
        for first, last in self.writes.others(since + 1, end.sequence):
            most = min(last, first + MOST_READ - len(named) - 1)
            entries = await self.chain.entries(first, most) if first <= most else ()
            own = {sequence for sequence, entry in entries if self.writes.recognize(sequence, entry)}
            named += [one for one in entries if one[0] not in own]
            found += self.writes.others(first, last) if own else [(first, last)]
        return tuple(named), found

    def _note_foreign(self, entries: Sequence[Foreign], ranges: Sequence[Range]) -> int:
        """Record the foreign entries except closings; return their number."""
        self.foreign = tuple(one for one in entries if one[1].kind is not Kind.CLOSE)
        closings = len(entries) - len(self.foreign)
        self.foreign_count = sum(last - first + 1 for first, last in ranges) - closings
        return closings

    def _cause(self, ranges: Sequence[Range], *, closings: int) -> Cause:
        if self._since is None:
            return Cause.START
        if closings:
            return Cause.CLOSING
        if ranges:
            return Cause.FOREIGN
        return Cause.MARK if self._marked else Cause.TIME

    async def _refresh_keys(self) -> None:
        """Read the keys, and make or replace the one in use if that is due."""
        stored = await self.keys.read()
        ring, version = (None, None) if stored is None else (key_history.from_secret(stored[0]), stored[1])
        due = key_history.rotated(ring, self.public, lifetime=self.settings.lifetime, now=self.clock())
        if ring is None or due.keys != ring.keys:
            await self.keys.write(key_history.to_secret(due), version)
            if ring is None or due.keys[-1] != ring.keys[-1]:
                log.info("heads of the books are signed by a new key", key=due.keys[-1].id, keys=len(due.keys))
        self._ring, self.public = due, due.keys


def _difference(known: _Known, digest: str | None, end: ChainEnd) -> str:
    what = f"transaction {known.sequence} has digest {known.digest} by {known.source}"
    if digest is not None:
        return f"{what}, and {digest} in the ledger: its chain was written anew"
    if known.sequence < end.closed:
        return f"{what}, and the books were closed through transaction {end.closed}, past everything that is known"
    return f"{what}, and the ledger's chain ends at transaction {end.sequence}, or has none there"
