"""The books as they stood at a past moment, made from the chain: what was open then, and every balance.

The chain is replayed from the latest closing, or from a moment that was asked for before, and its hashes are checked on
the way: what is shown of the past is what was written then. Memory holds what is open at a few such moments.
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
"""Transactions replayed at a time, in a thread; between two batches, others are answered."""

KEPT = 4
"""Moments that are remembered, to go on from."""


@dataclass(frozen=True, slots=True)
class _Point:
    """Where a chain stood, and the books then."""

    sequence: int
    epoch: int
    digest: str
    book: Book


class Histories:
    """The past of one cluster's books. Safe for concurrent use in one event loop; one replay runs at a time."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._points: OrderedDict[int, _Point] = OrderedDict()
        self._turn = asyncio.Lock()

    async def at(self, connection: AsyncConnection, moment: datetime) -> Book:
        """Return the books after the last transaction up to and with a moment.

        Raises LedgerCorruptError when the chain up to there is wrong. A moment before the books begin is the caller's
        to refuse (see `bases.base`): it is answered with what they begin with.
        """
        target = await base.through(connection, self._cluster, moment)
        async with self._turn:
            begin = await self._begin(connection)
            nearest = max(
                (point for point in self._points.values() if begin.sequence <= point.sequence <= target),
                key=lambda point: point.sequence,
                default=begin,
            )
            try:
                point = await self._replayed(connection, nearest, target)
            except LedgerCorruptError:
                if nearest is begin:
                    raise
                # The database may be another one than before, restored from a backup.
                self._points.clear()
                point = await self._replayed(connection, begin, target)
            self._keep(point)
            return point.book

    async def _begin(self, connection: AsyncConnection) -> _Point:
        carried = await carry_forward.latest(connection, self._cluster)
        if carried is None:
            return _Point(0, 0, GENESIS, Book())
        return _Point(carried.sequence, carried.epoch, carried.digest, carried.book)

    async def _replayed(self, connection: AsyncConnection, start: _Point, target: int) -> _Point:
        if start.sequence == target:
            return start
        fast = FastReplay(
            self._cluster, sequence=start.sequence, epoch=start.epoch, digest=start.digest, book=start.book
        )
        while fast.sequence < target:
            limit = min(BATCH, target - fast.sequence)
            batch = await documents.batch(connection, self._cluster, after=fast.sequence, limit=limit)
            try:
                right = bool(batch) and await asyncio.to_thread(fast.follow, batch)
            except FallBackToExactError:
                right = False
            if not right:
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
