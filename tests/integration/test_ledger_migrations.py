"""The schema: up, down and up again, by one process at a time, and equal to the tables."""

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, text
from sqlalchemy.ext.asyncio import AsyncConnection

from admission import resources
from admission.accounting import seat_transfer
from admission.accounting.books import Book
from admission.api.values import names
from admission.api.values.names import GangUid, NodeName
from admission.errors import LedgerCorruptError, LedgerUnavailableError, LedgerVersionError
from admission.ledger.db import database_url, engines, migrations, tables
from admission.ledger.sql_ledger import SqlLedger
from tests.integration.conftest import Fresh
from tests.integration.ledgers import (
    CLUSTER,
    ON_POSTGRESQL,
    ON_SQLITE,
    TRIGGERS,
    a_gang,
    a_grant,
    a_history,
    database_of,
    file_of,
    minutes,
    rows,
    run,
    tamper,
    url_of,
)

ROOT = Path(__file__).parents[2]
FILLED = Path(__file__).parent / "data" / "ledger-0001.json"
"""The rows of `a_history` as Muster wrote them at revision 0001."""

OBJECTS = {
    "sqlite": "SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' AND name NOT LIKE 'alembic%'",
    "postgresql": (
        "SELECT 'table', relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
        " AND relname <> 'alembic_version'"
        " UNION ALL SELECT 'index', indexname::text FROM pg_indexes WHERE schemaname = 'public'"
        " AND tablename <> 'alembic_version'"
        " UNION ALL SELECT 'trigger', tgname::text FROM pg_trigger WHERE NOT tgisinternal"
        " UNION ALL SELECT 'function', proname::text FROM pg_proc WHERE pronamespace = 'public'::regnamespace"
    ),
}
"""What lies in a database: kinds and names."""


@pytest.fixture
def url(new_database: Fresh) -> str:
    """The URL of a database without tables."""
    return new_database()


def objects(url: str) -> set[tuple[object, ...]]:
    return set(rows(url, OBJECTS[database_of(url)]))


async def fill(url: str) -> None:
    async with SqlLedger.open(url, CLUSTER) as ledger:
        for entry in a_history():
            await ledger.post(entry, epoch=1)


async def test_a_new_ledger_gets_the_newest_revision(url: str) -> None:
    assert await migrations.current_revision(url) is None

    await migrations.migrate(url)

    assert await migrations.current_revision(url) == tables.REVISION


async def test_a_new_file_gets_its_folder(tmp_path: Path) -> None:
    url = url_of(tmp_path / "not" / "there yet" / "100%.db")

    await migrations.migrate(url)

    assert await migrations.current_revision(url) == tables.REVISION


async def test_the_revision_in_the_code_is_the_newest_script() -> None:
    assert (await migrations.known_revisions())[-1] == tables.REVISION


async def test_migrating_again_changes_nothing(url: str) -> None:
    await migrations.migrate(url)
    await fill(url)

    await migrations.migrate(url)

    async with SqlLedger.open(url, CLUSTER) as ledger:
        assert await ledger.load() == Book.replay(a_history())


async def test_a_filled_ledger_goes_down_to_nothing_and_up_again(url: str) -> None:
    found = []
    for _ in range(2):
        await migrations.migrate(url)
        await fill(url)
        async with SqlLedger.open(url, CLUSTER) as ledger:
            assert (await ledger.verify()).ok
        found.append(objects(url))

        await migrations.downgrade(url, revision="base")

        assert objects(url) == set()
        assert await migrations.current_revision(url) is None
    assert found[0] == found[1]
    assert {name for kind, name in found[0] if kind == "table"} == set(tables.metadata.tables)
    assert {name for kind, name in found[0] if kind == "trigger"} >= set(TRIGGERS[database_of(url)])


@pytest.mark.parametrize("revision", ["0001", "0002", "0003", "0005"])
async def test_every_revision_goes_down_to_what_it_was_before(url: str, revision: str) -> None:
    await migrations.migrate(url, revision=revision)
    before = objects(url)

    await migrations.migrate(url)
    await migrations.downgrade(url, revision=revision)

    assert objects(url) == before
    await migrations.migrate(url)


async def test_a_ledger_with_a_moved_seat_does_not_go_back(url: str) -> None:
    reserved, asked_as = a_gang(), names.node_to_come("x8", 1)
    moved = seat_transfer.inherit(
        Book.replay([reserved]).placements[GangUid("gang")],
        gone=[*(seat.pod_uid for seat in reserved.seats), *(held.claim_uid for held in reserved.holdings)],
        seats=[replace(seat, node=NodeName("come"), asked_as=asked_as) for seat in reserved.seats],
        holdings=reserved.holdings,
        at=minutes(1),
        actor="muster",
    )
    await migrations.migrate(url)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        await ledger.post_all([a_grant(), reserved, moved], epoch=1)
    before = objects(url)

    with pytest.raises(LedgerVersionError, match="the 1 transactions that moved seats"):
        await migrations.downgrade(url, revision="0005")

    assert objects(url) == before
    await migrations.downgrade(url, revision="base")


async def an_old_ledger(url: str) -> None:
    await migrations.migrate(url, revision="0001")
    for table, lines in json.loads(FILLED.read_text()).items():
        for line in lines:
            values = ", ".join("'" + value.replace("'", "''") + "'" for value in line.values())
            run(url, f"INSERT INTO {table} ({', '.join(line)}) VALUES ({values})")  # noqa: S608 - our own file


async def test_a_ledger_of_the_first_revision_keeps_its_books_and_its_proof(url: str) -> None:
    await an_old_ledger(url)

    await migrations.migrate(url)

    async with SqlLedger.open(url, CLUSTER) as ledger:
        assert (await ledger.verify()).ok
        assert (await ledger.load()).balances == Book.replay(a_history()).balances
        await ledger.post(a_gang("later", at=minutes(9)), epoch=2)
        verification = await ledger.verify()
        assert verification.ok, verification.finding
        assert verification.transactions == 7


async def test_an_upgraded_ledger_without_new_entries_goes_back_unchanged(url: str) -> None:
    await an_old_ledger(url)
    before = content(url)

    await migrations.migrate(url)
    await migrations.downgrade(url, revision="0001")

    assert content(url) == before


def content(url: str) -> dict[str, list[tuple[object, ...]]]:
    return {table: sorted(rows(url, f"SELECT * FROM {table}"), key=str) for table in json.loads(FILLED.read_text())}  # noqa: S608 - our own file


async def test_the_migrations_make_the_tables_that_the_code_declares(url: str, new_database: Fresh) -> None:
    await migrations.migrate(url)
    declared = new_database()
    async with connected(declared) as other:
        await other.run_sync(tables.metadata.create_all)
        right = await other.run_sync(described)
        await other.commit()

    async with connected(url) as connection:
        assert await connection.run_sync(differences) == []
        left = await connection.run_sync(described)
    assert left == right


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[AsyncConnection]:
    async with engines.engine(database_url.parsed(url)) as engine, engine.connect() as connection:
        yield connection


def differences(connection: Connection) -> object:
    context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
    return compare_metadata(context, tables.metadata)


def described(connection: Connection) -> dict[str, object]:
    """Return what alembic's comparison leaves out: names and texts of constraints, and how columns and tables are."""
    found = inspect(connection)
    return {
        table: (
            sorted(
                (column["name"], str(column["type"]), column["nullable"], column["default"])
                for column in found.get_columns(table)
            ),
            found.get_pk_constraint(table),
            sorted(found.get_unique_constraints(table), key=str),
            sorted(found.get_foreign_keys(table), key=str),
            sorted(found.get_check_constraints(table), key=str),
            sorted(found.get_indexes(table), key=str),
            found.get_table_options(table),
        )
        for table in tables.metadata.tables
    }


@ON_SQLITE
async def test_every_constraint_has_a_name(url: str) -> None:
    await migrations.migrate(url)
    for (said,) in rows(url, "SELECT sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'alembic%'"):
        keys = [line for line in str(said).splitlines() if "KEY" in line or "UNIQUE" in line or "CHECK" in line]
        assert keys
        assert all(line.strip().startswith("CONSTRAINT ") for line in keys)


async def test_tasks_that_migrate_at_once_wait_for_each_other(url: str) -> None:
    await asyncio.gather(*(migrations.migrate(url) for _ in range(4)))

    assert await migrations.current_revision(url) == tables.REVISION


async def test_tasks_that_migrate_different_ledgers_do_not_disturb_each_other(new_database: Fresh) -> None:
    """Alembic keeps its context in module globals."""
    different = [new_database() for _ in range(3)]

    await asyncio.gather(*map(migrations.migrate, different))

    assert [await migrations.current_revision(url) for url in different] == [tables.REVISION] * 3


async def test_processes_that_migrate_at_once_wait_for_each_other(url: str) -> None:
    program = f"import asyncio; from admission.ledger.db import migrations; asyncio.run(migrations.migrate({url!r}))"
    processes = [await asyncio.create_subprocess_exec(sys.executable, "-c", program) for _ in range(3)]

    assert [await process.wait() for process in processes] == [0, 0, 0]
    assert await migrations.current_revision(url) == tables.REVISION


@ON_SQLITE
async def test_a_new_file_that_somebody_else_writes_is_waited_for(new_database: Fresh) -> None:
    """SQLite itself does not wait here: a file in rollback mode is put into WAL mode, by a reader that would write."""
    url = new_database()
    with closing(sqlite3.connect(file_of(url), isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        migration = asyncio.create_task(migrations.migrate(url))
        await asyncio.sleep(0.2)
        assert not migration.done()
        writer.execute("ROLLBACK")

    await migration
    assert await migrations.current_revision(url) == tables.REVISION


@ON_SQLITE
async def test_a_new_file_that_somebody_keeps_locked_is_left(
    new_database: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "BUSY_SECONDS", 0.05)
    url = new_database()
    with closing(sqlite3.connect(file_of(url), isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailableError, match="locked"):
            await migrations.migrate(url)


@ON_SQLITE
async def test_a_file_that_is_being_written_is_not_migrated_under_the_writer(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrations.migrate(url)
    monkeypatch.setattr(engines, "BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(file_of(url), isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailableError, match="locked"):
            await migrations.migrate(url)


@ON_POSTGRESQL
async def test_a_table_that_is_being_written_is_waited_for_and_then_left(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrations.migrate(url, revision="0001")
    monkeypatch.setattr(migrations, "LOCK_SECONDS", 0.2)
    async with connected(url) as writer:
        await writer.execute(text("LOCK TABLE transactions IN ROW EXCLUSIVE MODE"))
        with pytest.raises(LedgerUnavailableError, match="lock timeout"):
            await migrations.migrate(url)

    assert await migrations.current_revision(url) == "0001"
    await migrations.migrate(url)


async def test_a_migration_that_fails_leaves_nothing_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "upgrade", broken_after(command.upgrade))

    with pytest.raises(RuntimeError, match="half-way"):
        await migrations.migrate(url)

    assert objects(url) == set()
    assert await migrations.current_revision(url) is None


def broken_after(upgrade: object) -> object:
    def broken(*arguments: object) -> None:
        upgrade(*arguments)  # type: ignore[operator]
        raise RuntimeError("half-way")

    return broken


async def test_a_newer_ledger_is_not_migrated(url: str) -> None:
    await migrations.migrate(url)
    tamper(url, "UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(LedgerVersionError, match=f"revision 9999, newer than this Muster's {tables.REVISION}"):
        await migrations.migrate(url)


COMMANDS = {
    "migrate": ("ledger", "migrate"),
    "statement": ("ledger", "statement"),
    "verify": ("ledger", "verify"),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
async def test_a_newer_ledger_is_refused_by_every_command(url: str, words: tuple[str, ...]) -> None:
    await migrations.migrate(url)
    tamper(url, "UPDATE alembic_version SET version_num = '9999'")

    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("muster"), *words, "--database", url, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()

    assert process.returncode == 2
    assert "at revision 9999" in " ".join(said.decode().split())
    assert "run the Muster that upgraded it, or a later one" in " ".join(said.decode().split())


async def test_a_file_that_is_no_database_is_not_migrated(tmp_path: Path) -> None:
    path = tmp_path / "garbage.db"
    path.write_bytes(b"garbage" * 1000)

    with pytest.raises(LedgerCorruptError, match="restore a backup"):
        await migrations.migrate(url_of(path))
    assert path.read_bytes() == b"garbage" * 1000


def test_a_checkout_finds_its_own_migrations() -> None:
    assert resources.migrations() == ROOT / "migrations"
    assert resources.config() == ROOT / "config"


def test_a_folder_that_is_nowhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "admission")

    with pytest.raises(FileNotFoundError, match="'migrations' is neither in"):
        resources.migrations()
