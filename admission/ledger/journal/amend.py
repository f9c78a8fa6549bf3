"""Writes by processes other than the leader: an operator's corrections, and closings.

They are written under the stored epoch, so that the leader is not deposed, and only if the ledger still equals the book
that they were made from. The leader notices the longer chain by the numbers of its next entries, or when it reads the
latest number, and loads the book again.
"""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api.muster.ledger_entries import Entry, Posted
from admission.errors import ConflictError, DeposedError
from admission.ledger.db.tables import clusters
from admission.ledger.journal import post, read


async def amend(connection: AsyncConnection, cluster: str, entries: Sequence[Entry], *, known: int) -> list[Posted]:
    """Write entries after transaction `known`, the last one that their author has seen.

    Raises ConflictError when other transactions follow it, OvertakenError, and as `post.post_all`.
    """
    head = await read.head(connection, cluster)
    epoch, sequence = (0, 0) if head is None else (head.epoch, head.sequence)
    if sequence != known:
        raise ConflictError(f"the books of cluster {cluster} have gone on from transaction {known} to {sequence}")
    try:
        return list(await post.post_all(connection, cluster, entries, epoch=epoch))
    except DeposedError as error:  # a leader has written since the head was read; the author has no epoch to lose
        raise post.OvertakenError from error


async def hold(connection: AsyncConnection, cluster: str) -> int:
    """Lock the head of the chain until the commit; return its sequence, 0 where there is no chain.

    For long work, which would otherwise restart at every write of a busy leader.
    """
    head = select(clusters.c.sequence).where(clusters.c.cluster == cluster).with_for_update()
    return int((await connection.execute(head)).scalar_one_or_none() or 0)
