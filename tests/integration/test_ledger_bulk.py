"""Many rows in one statement: as one whole, and exactly."""

from pathlib import Path

import pytest
from sqlalchemy import BigInteger, Column, MetaData, Table, Text, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.ledger.db import bulk_insert, database_url, engines
from admission.ledger.db.tables import balances, clusters
from tests.integration.ledgers import rows

EAST = ("east", 1, 0, "")
LARGE = str(10**38 - 1)


async def test_rows_that_are_not_committed_are_gone(url: str) -> None:
    """Also where they are the first that a SQL transaction writes."""
    with pytest.raises(RuntimeError, match="half-way"):
        await fail_after_writing(url)

    assert rows(url, "SELECT * FROM clusters") == []


async def fail_after_writing(url: str) -> None:
    async with engines.engine(database_url.parsed(url)) as engine, engines.writing(engine) as connection:
        await bulk_insert.insert(connection, clusters, [EAST])
        raise RuntimeError("half-way")


async def test_a_bulk_insert_replaces_or_refuses_existing_rows(url: str) -> None:
    async with engines.engine(database_url.parsed(url)) as engine:
        async with engines.writing(engine) as connection:
            await bulk_insert.insert(connection, clusters, [EAST])
            await bulk_insert.insert(connection, balances, [("east", "a", "gpu", "free", "1")])
            await bulk_insert.put(
                connection, balances, [("east", "a", "gpu", "free", LARGE), ("east", "b", "gpu", "free", "2")]
            )
            await bulk_insert.put(connection, balances, [])
        with pytest.raises(IntegrityError):
            async with engines.writing(engine) as connection:
                await bulk_insert.insert(connection, clusters, [EAST])

    found = rows(url, "SELECT queue, amount FROM balances ORDER BY queue")
    assert [(queue, int(str(amount))) for queue, amount in found] == [("a", 10**38 - 1), ("b", 2)]


async def test_text_that_is_too_long_is_not_cut(url: str) -> None:
    """PostgreSQL's cast to a type with a length would cut it without a word; SQLite keeps it all."""
    async with engines.engine(database_url.parsed(url)) as engine:
        try:
            async with engines.writing(engine) as connection:
                await bulk_insert.insert(connection, clusters, [("e" * 300, 1, 0, "")])
        except DBAPIError:
            assert rows(url, "SELECT * FROM clusters") == []
        else:
            assert rows(url, "SELECT cluster FROM clusters") == [("e" * 300,)]


MADE = "CREATE TABLE many (cluster TEXT, sequence BIGINT, name TEXT, same TEXT, number BIGINT, also TEXT)"
many = Table(
    "many",
    MetaData(),
    Column("cluster", Text),
    Column("sequence", BigInteger),
    Column("name", Text),
    Column("same", Text),
    Column("number", BigInteger),
    Column("also", Text),
)

TEXTS = ["plain", 'quote" and \\ and \n', "Zürich \U0001f600", "\x7f\x01", str(2**63), LARGE, ""]


async def test_rows_that_are_read_from_json_hold_what_was_given(url: str) -> None:
    given = [("east", 2**63 - 1 - at, name, name, 2**63 - 1 - at, name) for at, name in enumerate(TEXTS)]
    async with engines.engine(database_url.parsed(url)) as engine, engines.writing(engine) as connection:
        await connection.execute(text(MADE))
        await bulk_insert.insert_at_once(connection, many, given)
        await bulk_insert.insert_at_once(connection, many, [])

        assert [tuple(row) for row in await connection.execute(select(many).order_by(many.c.number.desc()))] == given


async def test_a_nul_character_does_not_cut_text_inserted_through_json(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/ledger.db"
    async with engines.engine(database_url.parsed(url)) as engine, engines.writing(engine) as connection:
        await connection.execute(text(MADE))
        await bulk_insert.insert_at_once(connection, many, [("east", 1, "a\x00b", "", 1, "")])

        assert (await connection.execute(select(many.c.name))).scalar_one() == "a\x00b"


async def test_lists_may_be_longer_than_a_statement_has_parameters(url: str) -> None:
    names = [f"queue-{number}" for number in range(40_000)]
    async with engines.engine(database_url.parsed(url)) as engine:
        async with engines.writing(engine) as connection:
            await bulk_insert.insert(connection, clusters, [EAST])
            await bulk_insert.insert(connection, balances, [("east", name, "gpu", "free", "1") for name in names[:3]])
            assert await found(connection, names) == names[:3]
            statement = "DELETE FROM balances WHERE cluster = {cluster} AND queue {0}"
            await bulk_insert.execute(connection, statement, "east", names[1:])
            assert await found(connection, ["queue-0", 'it\'s "none"']) == names[:1]
        async with engines.reading(engine) as connection:
            assert (await connection.execute(text("SELECT count(*) FROM balances"))).scalar_one() == 1


async def found(connection: AsyncConnection, names: list[str]) -> list[str]:
    statement = "SELECT queue FROM balances WHERE cluster = {cluster} AND queue {0} ORDER BY queue"
    return [name for (name,) in await bulk_insert.fetch(connection, statement, "east", names)]
