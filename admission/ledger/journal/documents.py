"""Transactions in the form that is hashed, serialized by the database itself: many of them in one value.

The database serializes them faster than Python reads their columns, and in parallel with Python. The result is hashed
and then read (module `fast_replay`), so it is not trusted: another form than the hashed one would only make
verification slow. If the lines of a transaction are not numbered from 1, the document omits them, so its hash differs.
"""

import msgspec
from sqlalchemy import BigInteger, TextClause, bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.ledger.journal import hash_chain
from admission.ledger.journal.hash_chain import HashedFields

_HASHED = ", ".join(f'"{name}"' for name in HashedFields._fields)

_SQLITE = f"""
SELECT CAST(group_concat(format || ' ' || digest || ' ' || rtrim(said, ']') || ',[' || lines || ']]', char(10)) AS BLOB)
FROM (
    SELECT format, digest,
        json_array({hash_chain.FORMAT}, cluster, epoch, sequence, previous, {_HASHED}) AS said,
        coalesce((
            SELECT CASE WHEN min(line) = 1 AND max(line) = count(*)
                THEN group_concat(json_array(queue, meter, bucket, amount, claim)) END
            FROM postings AS p
            WHERE p.cluster = t.cluster AND p.sequence = t.sequence ORDER BY line
        ), '') AS lines
    FROM transactions AS t WHERE cluster = :cluster AND sequence > :after AND sequence <= :last ORDER BY sequence
)
"""  # noqa: S608 - our own names

_AT = """to_char("at" AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')"""

_HASHED_IN_POSTGRESQL = ", ',', ".join(
    f"to_json({_AT})" if name == "at" else f'to_json("{name}")' for name in HashedFields._fields
)

_POSTGRESQL = f"""
SELECT convert_to(string_agg(concat(
    format, ' ', digest, ' [{hash_chain.FORMAT},', to_json(cluster), ',', epoch, ',', sequence, ',', to_json(previous),
    ',', {_HASHED_IN_POSTGRESQL}, ',[', (
        SELECT CASE WHEN min(line) = 1 AND max(line) = count(*) THEN string_agg(concat(
            '[', to_json(queue), ',', to_json(meter), ',', to_json(bucket), ',"', amount, '",', to_json(claim), ']'
        ), ',' ORDER BY line) END
        FROM postings AS p WHERE p.cluster = t.cluster AND p.sequence = t.sequence
    ), ']]'
), E'\\n' ORDER BY sequence), 'UTF8')
FROM transactions AS t WHERE cluster = :cluster AND sequence > :after AND sequence <= :last
"""  # noqa: S608 - the same; lines of one transaction at a time, which is no slower and needs no statistics


class Document(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    """The hashed columns of a transaction: see `hash_chain`."""

    format: int
    cluster: str
    epoch: int
    sequence: int
    previous: str
    kind: str
    key: str
    at: str
    actor: str
    reason: str
    queue: str
    on_behalf_of: str
    user: str
    gang_uid: str
    gang: str
    seats: str
    holdings: str
    closes: str
    lines: list[tuple[str, str, str, str, str]]


read = msgspec.json.Decoder(Document).decode


async def batch(connection: AsyncConnection, cluster: str, *, after: int, limit: int) -> list[bytes]:
    """Return transactions after a sequence, in their order: each as its format, its digest and its document.

    limit: the number of sequences to read; fewer transactions are returned where rows are missing.
    """
    statement = _STATEMENTS[connection.dialect.name]
    result = await connection.execute(statement, {"cluster": cluster, "after": after, "last": after + limit})
    serialized: bytes | None = result.scalar_one()
    return [] if serialized is None else serialized.split(b"\n")


def _bound(statement: str) -> TextClause:
    return text(statement).bindparams(bindparam("after", type_=BigInteger), bindparam("last", type_=BigInteger))


_STATEMENTS = {"sqlite": _bound(_SQLITE), "postgresql": _bound(_POSTGRESQL)}
