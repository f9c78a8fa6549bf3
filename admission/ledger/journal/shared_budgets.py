"""Budgets that several clusters share: the sum that all of them have taken, and each cluster's share of it.

`shared_budgets.taken` is the sum of the shares of all clusters. A cluster that writes its share moves the sum by the
difference, and locks the row until its SQL transaction ends; other clusters wait, and then see the new sum. All
clusters lock budgets in the same order. A share of a period that has not begun is the part promised to gangs there.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Row, Table, and_, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api.muster.ledger_entries import BudgetShare
from admission.errors import BudgetTakenError
from admission.ledger.db.tables import BUDGET_KEY, budget_shares, shared_budgets
from admission.ledger.journal import read
from admission.ledger.journal.post import OvertakenError


async def write_within_limits(connection: AsyncConnection, cluster: str, shares: Sequence[BudgetShare]) -> None:
    """Write a cluster's shares, unless one that grows would take the sum of all clusters over its limit.

    Raises BudgetTakenError with that share, and OvertakenError.
    """
    for share in sorted(shares, key=_budget_key):
        await _move(connection, cluster, share, enforced=True)


async def write(
    connection: AsyncConnection, cluster: str, shares: Sequence[BudgetShare], now: datetime
) -> list[BudgetShare]:
    """Write a cluster's shares without checking the limit. Return them with the sums over all clusters.

    The cluster's share of a future period that is not stated becomes zero: the cluster no longer has that budget.
    """
    written = {_budget_key(share) for share in shares}
    for share in await _future_shares(connection, cluster, now):
        if _budget_key(share) not in written:
            await _move(connection, cluster, share, enforced=False)
    taken = {
        _budget_key(share): await _move(connection, cluster, share, enforced=False)
        for share in sorted(shares, key=_budget_key)
    }
    return [replace(share, seconds=taken[_budget_key(share)]) for share in shares]


async def _future_shares(connection: AsyncConnection, cluster: str, now: datetime) -> list[BudgetShare]:
    """Return a share of zero for each future period that has a promise of the cluster."""
    same_budget = and_(*(shared_budgets.c[name] == budget_shares.c[name] for name in BUDGET_KEY))
    own_future = and_(budget_shares.c.cluster == cluster, budget_shares.c.start > now, budget_shares.c.seconds != 0)
    key = [budget_shares.c[name] for name in BUDGET_KEY]
    query = select(*key, shared_budgets.c.limit).join_from(budget_shares, shared_budgets, same_budget).where(own_future)
    rows = (await connection.execute(query.order_by(*key))).all()
    return [
        BudgetShare(queue=row[0], meter=row[1], start=row[2], end=row[3], limit=row.limit, seconds=0) for row in rows
    ]


async def _move(connection: AsyncConnection, cluster: str, share: BudgetShare, *, enforced: bool) -> int:
    before = await _sum(connection, share)
    taken = before.taken if before else 0
    own_share = await _own_share(connection, cluster, share)
    change = share.seconds - (own_share or 0)
    if enforced and change > 0 and taken + change > share.limit:
        raise BudgetTakenError(share)

    # Shares are stated in every cycle, and mostly have not changed.
    if not change and (before is None or before.limit == share.limit):
        return taken
    if before is None:
        await _begin(connection, share)
    moved = await connection.execute(
        update(shared_budgets)
        .where(_is_budget(shared_budgets, share), shared_budgets.c.taken == taken)
        .values(taken=taken + change, limit=share.limit)
    )
    if moved.rowcount != 1:
        raise OvertakenError
    await _write_share(connection, cluster, share, own_share)
    return taken + change


class _Sum(NamedTuple):
    taken: int
    limit: int


async def _sum(connection: AsyncConnection, share: BudgetShare) -> _Sum | None:
    """Return the sum over all clusters, and lock its row. In SQLite the transaction holds the write lock already."""
    sums = (
        select(shared_budgets.c.taken, shared_budgets.c.limit)
        .where(_is_budget(shared_budgets, share))
        .with_for_update()
    )
    row = (await connection.execute(sums)).one_or_none()
    return None if row is None else _Sum(*row)


async def _begin(connection: AsyncConnection, share: BudgetShare) -> None:
    try:
        await connection.execute(insert(shared_budgets).values(**_columns(share), limit=share.limit, taken=0))
    except IntegrityError as error:  # another cluster was first
        raise OvertakenError from error


async def _write_share(connection: AsyncConnection, cluster: str, share: BudgetShare, own_share: int | None) -> None:
    if own_share is None:
        await connection.execute(
            insert(budget_shares).values(cluster=cluster, **_columns(share), seconds=share.seconds)
        )
    else:
        own_row = and_(budget_shares.c.cluster == cluster, _is_budget(budget_shares, share))
        await connection.execute(update(budget_shares).where(own_row).values(seconds=share.seconds))


async def _own_share(connection: AsyncConnection, cluster: str, share: BudgetShare) -> int | None:
    own_row = select(budget_shares.c.seconds).where(
        budget_shares.c.cluster == cluster, _is_budget(budget_shares, share)
    )
    seconds: int | None = (await connection.execute(own_row)).scalar_one_or_none()
    return seconds


def _columns(share: BudgetShare) -> dict[str, Any]:
    return dict(zip(BUDGET_KEY, (share.queue, share.meter, share.start, share.end), strict=True))


def _budget_key(share: BudgetShare) -> tuple[Any, ...]:
    return tuple(_columns(share).values())


def _is_budget(table: Table, share: BudgetShare) -> ColumnElement[bool]:
    return and_(*(table.c[name] == value for name, value in _columns(share).items()))


async def problem(connection: AsyncConnection) -> str | None:
    """Return a description of the first shared budget whose sum is not that of the clusters' shares; None if none."""
    sums: defaultdict[tuple[Any, ...], int] = defaultdict(int)
    async for row in read.streamed(connection, select(budget_shares)):
        sums[_key(row)] += row.seconds
    async for row in read.streamed(connection, select(shared_budgets).order_by(*shared_budgets.primary_key)):
        expected = sums.pop(_key(row), 0)
        if row.taken != expected:
            name = f"the shared budget of {row.meter} of queue {row.queue} from {row.start:%Y-%m-%d}"
            return f"{name} says that {row.taken} meter-seconds are taken, the clusters' shares sum to {expected}"
    for queue, meter, start, _ in sums:
        return f"clusters have shares of a budget of {meter} of queue {queue} from {start:%Y-%m-%d} that is not there"
    return None


def _key(row: Row[Any]) -> tuple[Any, ...]:
    return tuple(row._mapping[name] for name in BUDGET_KEY)  # noqa: SLF001 - public, in spite of its name
