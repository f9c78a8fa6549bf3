"""Bulk statements: many rows in one statement, in the fastest way for each database.

PostgreSQL takes whole columns as arrays; SQLite takes rows one after the other inside its driver. Both get the same
rows: integer columns as integers, all other values as the text that SQLite stores. PostgreSQL parses that text itself,
which is faster than converting it to PostgreSQL's types here.
"""

import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import aiosqlite
import msgspec
from sqlalchemy import Boolean, Column, Integer, Table
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.ledger.db.column_types import ExactInteger, Instant

_json = msgspec.json.Encoder().encode

_CUTS_SHORT = b"\\u0000"
"""The escape at which SQLite's JSON functions cut a text; a text that is a parameter is not cut."""


async def insert(connection: AsyncConnection, table: Table, rows: Sequence[Sequence[Any]]) -> None:
    """Add rows, each with a value for every column, in the order of the columns."""
    await _write(connection, _insertion(table, connection.dialect.name), rows)


async def insert_at_once(connection: AsyncConnection, table: Table, rows: Sequence[Sequence[Any]]) -> None:
    """Add rows of numbers and texts in one long statement, during which Python can compute; SQLite reads them as JSON.

    Many short rows cost no more than with `insert`; long rows cost twice as much.
    """
    encoded = b"" if _in_postgresql(connection) else _json(rows)
    if not encoded or _CUTS_SHORT in encoded:
        await insert(connection, table, rows)
    elif rows:
        statement = _insertion_from_json(table)
        async with _sqlite(connection, statement) as driver:
            await driver.execute(statement, (encoded.decode(),))


async def put(connection: AsyncConnection, table: Table, rows: Sequence[Sequence[Any]]) -> None:
    """Add rows, or replace those that have the same key."""
    await _write(connection, _insertion(table, connection.dialect.name) + _replacing(table), rows)


async def fetch(connection: AsyncConnection, statement: str, cluster: str, *lists: Iterable[str]) -> Sequence[Any]:
    """Return the rows of a query for a cluster and lists of texts: tuples, in the types of the driver.

    In the statement, `{cluster}` is replaced by the cluster, and `{0}`, `{1}` … by conditions that the expression
    before them is in the list of that number. A list is one parameter, whatever its length.
    """
    text, parameters = _bound(connection, statement, cluster, lists)
    if _in_postgresql(connection):
        return (await connection.exec_driver_sql(text, parameters)).all()
    async with _sqlite(connection, text) as driver:
        return list(await driver.execute_fetchall(text, parameters))


async def execute(connection: AsyncConnection, statement: str, cluster: str, *lists: Iterable[str]) -> None:
    """Run a statement that is written as for `fetch`."""
    text, parameters = _bound(connection, statement, cluster, lists)
    if _in_postgresql(connection):
        await connection.exec_driver_sql(text, parameters)
        return
    async with _sqlite(connection, text) as driver:
        await driver.execute(text, parameters)


async def _write(connection: AsyncConnection, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    if not rows:
        return
    if _in_postgresql(connection):
        await connection.exec_driver_sql(statement, tuple(map(list, zip(*rows, strict=True))))
        return
    async with _sqlite(connection, statement) as driver:
        await driver.executemany(statement, rows)


def _in_postgresql(connection: AsyncConnection) -> bool:
    return connection.dialect.name == "postgresql"


@asynccontextmanager
async def _sqlite(connection: AsyncConnection, statement: str) -> AsyncIterator[aiosqlite.Connection]:
    """Yield the driver's connection: it switches threads once per statement, SQLAlchemy three or four times."""
    if not connection.in_transaction():  # SQLAlchemy begins with the first statement that it sees
        await connection.begin()
    driver = (await connection.get_raw_connection()).driver_connection
    assert isinstance(driver, aiosqlite.Connection)  # noqa: S101 - see `database_url`
    try:
        yield driver
    except sqlite3.Error as error:
        raise DBAPIError.instance(statement, None, error, sqlite3.Error, dialect=connection.dialect) from error


def _bound(
    connection: AsyncConnection, statement: str, cluster: str, lists: Iterable[Iterable[str]]
) -> tuple[str, tuple[Any, ...]]:
    values = [list(list_) for list_ in lists]
    if _in_postgresql(connection):
        conditions = [f"= ANY (${number}::text[])" for number in range(2, len(values) + 2)]
        return statement.format(*conditions, cluster="$1"), (cluster, *values)
    conditions = [f"IN (SELECT value FROM json_each(?{number}))" for number in range(2, len(values) + 2)]  # noqa: S608
    return statement.format(*conditions, cluster="?1"), (cluster, *(_json(list_).decode() for list_ in values))


@cache
def _insertion(table: Table, dialect: str) -> str:
    columns = list(table.columns)
    names = ", ".join(f'"{column.name}"' for column in columns)
    if dialect != "postgresql":
        return f"INSERT INTO {table.name} ({names}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - our names
    arrays = ", ".join(f"${number}::{_bound_as(column)}[]" for number, column in enumerate(columns, 1))
    values = ", ".join(f'"{column.name}"{_cast(column)}' for column in columns)
    return f"INSERT INTO {table.name} ({names}) SELECT {values} FROM unnest({arrays}) AS rows ({names})"  # noqa: S608


@cache
def _insertion_from_json(table: Table) -> str:
    names = ", ".join(f'"{column.name}"' for column in table.columns)
    values = ", ".join(f"json_extract(value, '$[{number}]')" for number in range(len(table.columns)))
    return f"INSERT INTO {table.name} ({names}) SELECT {values} FROM json_each(?)"  # noqa: S608 - our names


def _bound_as(column: Column[Any]) -> str:
    return "bool" if isinstance(column.type, Boolean) else "int8" if isinstance(column.type, Integer) else "text"


def _cast(column: Column[Any]) -> str:
    """Return the cast of a text parameter. Never to a type with a length, which would truncate: assignment refuses."""
    return {ExactInteger: "::numeric", Instant: "::timestamptz"}.get(type(column.type), "")


@cache
def _replacing(table: Table) -> str:
    key = ", ".join(f'"{column.name}"' for column in table.primary_key)
    rest = ", ".join(f'"{c.name}" = excluded."{c.name}"' for c in table.columns if not c.primary_key)
    return f" ON CONFLICT ({key}) DO UPDATE SET {rest}"
