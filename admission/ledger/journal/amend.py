"""Writing beside the leader: an operator's corrections, and closings.

They are written under the epoch that stands, so that the leader is not deposed, and only for the book that they were
made from. The leader sees by the numbers of its next entries, or by asking for the latest, that the chain has grown
without it, and reads the book again.
"""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api.muster.ledger_entries import Entry, Posted
from admission.errors import ConflictError
from admission.ledger.db.tables import clusters
from admission.ledger.journal import post, read


async def amend(connection: AsyncConnection, cluster: str, entries: Sequence[Entry], *, known: int) -> list[Posted]:
    """Write entries after transaction `known`, the last one that their author has seen.

    Raises ConflictError when others follow it, OvertakenError, and as `posting.post`.
    """
    head = await read.head(connection, cluster)
    epoch, sequence = (0, 0) if head is None else (head.epoch, head.sequence)
    if sequence != known:
        raise ConflictError(f"the books of cluster {cluster} have gone on from transaction {known} to {sequence}")
    return list(await post.post_all(connection, cluster, entries, epoch=epoch))


async def hold(connection: AsyncConnection, cluster: str) -> int:
    """Keep others from moving the head of the chain until the commit; return its sequence, 0 where there is no chain.

    For long work: a leader that writes all the time would otherwise have it start over again and again.
    """
    head = select(clusters.c.sequence).where(clusters.c.cluster == cluster).with_for_update()
    return int((await connection.execute(head)).scalar_one_or_none() or 0)
