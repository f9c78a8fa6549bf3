"""The books at a past moment, rebuilt from the chain: every balance, and the gangs, seats and holdings then open.

The chain is replayed from the latest closing, or from an earlier answer, and its hashes are checked, so that the answer
is what was written then. Memory holds the books of the KEPT latest answers.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting.books import Book
from admission.errors import LedgerCorruptError
from admission.ledger.audit.fast_replay import FallBackToExactError, FastReplay
from admission.ledger.db.tables import GENESIS
from admission.ledger.journal import base, carry_forward, documents

BATCH = 500
"""Transactions replayed at a time, in a thread; the event loop serves other requests between batches."""

KEPT = 4
"""Answers that are cached, from which later replays start."""


@dataclass(frozen=True, slots=True)
class _Point:
    """A position in the chain, and the books there."""

    sequence: int
    epoch: int
    digest: str
    book: Book


class BookHistory:
    """The past of one cluster's books. Safe for concurrent use in one event loop; one replay runs at a time."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._points: OrderedDict[int, _Point] = OrderedDict()
        self._lock = asyncio.Lock()

    async def at(self, connection: AsyncConnection, moment: datetime) -> Book:
        """Return the books after the last transaction at or before a moment.

        Raises LedgerCorruptError when the chain up to there is wrong. The caller refuses moments before the base of the
        books (see `journal.base.base`); here they give the book at the base.
        """
        target = await base.through(connection, self._cluster, moment)
        async with self._lock:
            base_point = await self._base_point(connection)
            nearest = max(
                (point for point in self._points.values() if base_point.sequence <= point.sequence <= target),
                key=lambda point: point.sequence,
                default=base_point,
            )
            try:
                point = await self._replay(connection, nearest, target)
            except LedgerCorruptError:
                if nearest is base_point:
                    raise
                # A backup may have been restored, so the cached books may be of another chain.
                self._points.clear()
                point = await self._replay(connection, base_point, target)
            self._keep(point)
            return point.book

    async def _base_point(self, connection: AsyncConnection) -> _Point:
        carried = await carry_forward.latest(connection, self._cluster)
        if carried is None:
            return _Point(0, 0, GENESIS, Book())
        return _Point(carried.sequence, carried.epoch, carried.digest, carried.book)

    async def _replay(self, connection: AsyncConnection, start: _Point, target: int) -> _Point:
        if start.sequence == target:
            return start
        fast = FastReplay(
            self._cluster, sequence=start.sequence, epoch=start.epoch, digest=start.digest, book=start.book
        )
        while fast.sequence < target:
            limit = min(BATCH, target - fast.sequence)
            batch = await documents.batch(connection, self._cluster, after=fast.sequence, limit=limit)
            try:
                follows = bool(batch) and await asyncio.to_thread(fast.follow, batch)
            except FallBackToExactError:
                follows = False
            if not follows:
                raise LedgerCorruptError(
                    f"the chain of cluster {self._cluster} is wrong after transaction {fast.sequence}, so what stood"
                    " later is not known: run `muster ledger verify`"
                )
        return _Point(fast.sequence, fast.epoch, fast.digest, await asyncio.to_thread(fast.book))

    def _keep(self, point: _Point) -> None:
        self._points[point.sequence] = point
        self._points.move_to_end(point.sequence)
        while len(self._points) > KEPT:
            self._points.popitem(last=False)
