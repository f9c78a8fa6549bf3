"""A script for pgbench that writes what a batch of the ledger writes, over and over, from a batch that was written.

Keys and UIDs get the number of the batch's first transaction (`:n`) behind them; all else stays, so rows have the sizes
of real ones. Each statement has few variables, so that pgbench can prepare it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from tests.postgres import query

CASTS = {"at": "::timestamptz", "reserved_at": "::timestamptz", "amount": "::numeric"}
NUMBERED = {"key", "gang_uid", "pod_uid", "claim_uid"}


def of(url: str, cluster: str, size: int) -> tuple[list[str], str]:
    """Return statements that prepare a database, and the script, of the latest batch of so many transactions.

    As that batch did, each run opens gangs, settles those of the run before and closes those of the one before that.
    """
    ((last,),) = query(url, f"SELECT sequence FROM clusters WHERE cluster = '{cluster}'")  # noqa: S608
    opened = [row[0] for row in query(url, "SELECT gang_uid FROM open_holdings WHERE NOT settled")]
    theirs = f"gang_uid IN ({', '.join(map(_quoted, sorted(set(opened))))})"
    opening = [_inserted(url, table, theirs) for table in ("open_gangs", "open_seats", "open_holdings")]
    prepared = [
        f"INSERT INTO clusters VALUES ('{cluster}', 1, 0, '')",  # noqa: S608
        *(statement.replace(":n", f"({-batches * size})") for batches in (1, 2) for statement in opening),
    ]
    script = [
        "BEGIN;",
        f"UPDATE clusters SET sequence = :n + {size} WHERE cluster = '{cluster}' AND sequence = :n;",  # noqa: S608
        _inserted(url, "transactions", f"sequence > {last - size}", after=last - size),
        _inserted(url, "postings", f"sequence > {last - size}", after=last - size),
        _inserted(url, "balances", "true", otherwise=_REPLACED),
        *(_deleted(url, table, column, theirs, f"(:n - {2 * size})::text") for table, column in _OPEN),
        _deleted(url, "open_holdings", "claim_uid", theirs, f"(:n - {size})::text"),
        *opening,
        _inserted(url, "open_holdings", theirs, number=f"(:n - {size})::text"),
        "COMMIT;",
        f"\\set n :n + {size}",
    ]
    return prepared, "\n".join(script)


_REPLACED = " ON CONFLICT (cluster, queue, meter, bucket) DO UPDATE SET amount = excluded.amount"

_OPEN = (("open_seats", "pod_uid"), ("open_holdings", "claim_uid"), ("open_gangs", "gang_uid"))


def _inserted(
    url: str, table: str, where: str, *, after: int = 0, number: str = "(:n)::text", otherwise: str = ""
) -> str:
    """Return a statement that inserts the rows that are there, with new numbers."""
    columns = [row[0] for row in query(url, _COLUMNS.format(table))]
    names = ", ".join(f'"{column}"' for column in columns)
    shown = ", ".join(_shown(column, after) for column in columns)
    rows = query(url, f"SELECT {shown} FROM {table} WHERE {where}")  # noqa: S608
    values = ", ".join(_value(column, number) for column in columns)
    return f"INSERT INTO {table} ({names}) SELECT {values} FROM {_values(rows, names)}{otherwise};"  # noqa: S608


def _shown(column: str, after: int) -> str:
    return f'"{column}"::text' if column in CASTS else f"sequence - {after}" if column == "sequence" else f'"{column}"'


_COLUMNS = (
    "SELECT column_name::text FROM information_schema.columns WHERE table_name = '{}' AND table_schema = 'public'"
    " ORDER BY ordinal_position"
)


def _value(column: str, number: str) -> str:
    if column in NUMBERED:
        return f'v."{column}" || {number}'
    return "v.sequence + :n" if column == "sequence" else f'v."{column}"{CASTS.get(column, "")}'


def _values(rows: Iterable[Sequence[Any]], names: str) -> str:
    return "(VALUES " + ", ".join(f"({', '.join(map(_quoted, row))})" for row in rows) + f") AS v ({names})"


def _deleted(url: str, table: str, column: str, where: str, number: str) -> str:
    rows = query(url, f"SELECT {column} FROM {table} WHERE {where}")  # noqa: S608
    numbered = f"ARRAY(SELECT v.{column} || {number} FROM {_values(rows, column)})"  # noqa: S608
    return f"DELETE FROM {table} WHERE cluster = 'bench' AND {column} = ANY ({numbered});"  # noqa: S608


def _quoted(value: Any) -> str:
    if isinstance(value, bool | int):
        return str(value).lower()
    # pgbench takes a colon for the beginning of a variable, in strings too.
    return "E'" + str(value).replace("\\", "\\\\").replace("'", "''").replace(":", "\\x3a") + "'"
