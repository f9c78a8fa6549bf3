"""In-memory ports of signed heads, for tests: a chain, texts in the cluster, a place of publication.

`muster simulate` has none of them: its ledger has no chain, so nothing is signed.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence

from admission.api.muster.ledger_entries import ChainEnd, Entry, Posted
from admission.errors import ConflictError
from admission.heads.signed_head import SignedHead


class Chain:
    """A chain of digests in memory: the port Chain, which tests rewrite as the owner of a database could."""

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.epochs: dict[int, int] = {}
        """Under which each row was written."""
        self.rows: dict[int, tuple[Entry, str]] = {}
        self._closed = 0, "0" * 64

    @property
    def last(self) -> int:
        return max(self.rows, default=self._closed[0])

    def write(self, entry: Entry) -> Posted:
        """Add an entry of any writer."""
        digest = hashlib.sha256(f"{self._digest(self.last)}{entry}".encode()).hexdigest()
        posted = Posted(sequence=self.last + 1, digest=digest)
        self.rows[posted.sequence] = entry, digest
        self.epochs[posted.sequence] = self.epoch
        return posted

    def close(self, through: int) -> None:
        """Archive the rows through a place."""
        self._closed = through, self._digest(through) or ""
        self.rows = {sequence: row for sequence, row in self.rows.items() if sequence > through}

    def _digest(self, sequence: int) -> str | None:
        closed, digest = self._closed
        return digest if sequence == closed else self.rows[sequence][1] if sequence in self.rows else None

    async def end(self) -> ChainEnd:
        digest = self._digest(self.last) or ""
        return ChainEnd(epoch=self.epoch, sequence=self.last, digest=digest, closed=self._closed[0])

    async def digests(self, sequences: Collection[int]) -> dict[int, str]:
        return {sequence: digest for sequence in sequences if (digest := self._digest(sequence)) is not None}

    async def entries(self, first: int, last: int) -> list[tuple[int, Entry]]:
        return [(sequence, entry) for sequence, (entry, _) in sorted(self.rows.items()) if first <= sequence <= last]

    async def first_of(self, epoch: int, *, after: int) -> int | None:
        return min((place for place in self.rows if place > after and self.epochs[place] >= epoch), default=None)


class EntryStore:
    """A few named texts in memory: the port EntryStore, with the API server's rule for concurrent writers."""

    def __init__(self) -> None:
        self.stored: tuple[Mapping[str, bytes], str] | None = None
        self._version = 0

    async def read(self) -> tuple[Mapping[str, bytes], str] | None:
        return self.stored

    async def write(self, entries: Mapping[str, bytes], version: str | None) -> None:
        if version != (self.stored and self.stored[1]):
            raise ConflictError("the object has changed since it was read")
        self._version += 1
        self.stored = dict(entries), str(self._version)


class HeadSink:
    """Published heads in memory: the port HeadSink."""

    def __init__(self) -> None:
        self.heads: dict[bytes, SignedHead] = {}

    async def publish(self, heads: Sequence[SignedHead]) -> None:
        self.heads |= {signed.signature: signed for signed in heads}
