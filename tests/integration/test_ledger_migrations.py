"""The schema: up, down and up again, by one process at a time, and equal to the tables."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, create_engine, inspect

import admission
from admission import resources
from admission.errors import LedgerAwayError, LedgerCorruptError, LedgerVersionError
from admission.ledger import migrating, sessions, tables, urls
from admission.ledger.ledger import SqlLedger
from admission.quota.books import Book
from tests.integration.ledgers import CLUSTER, TRIGGERS, a_history, file_of, rows, tamper, url_of

ROOT = Path(__file__).parents[2]

OBJECTS = "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' AND name NOT LIKE 'alembic%'"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return url_of(tmp_path / "not" / "there yet" / "100%.db")


async def test_a_new_ledger_gets_its_folder_and_the_newest_revision(url: str) -> None:
    assert await migrating.current_revision(url) is None

    await migrating.migrate(url)

    assert await migrating.current_revision(url) == tables.REVISION


async def test_the_revision_in_the_code_is_the_newest_script() -> None:
    assert (await migrating.known_revisions())[-1] == tables.REVISION


async def test_migrating_again_changes_nothing(url: str) -> None:
    await migrating.migrate(url)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        for entry in a_history():
            await ledger.post(entry, epoch=1)

    await migrating.migrate(url)

    async with SqlLedger.open(url, CLUSTER) as ledger:
        assert await ledger.load() == Book.replay(a_history())


async def test_a_filled_ledger_goes_down_to_nothing_and_up_again(url: str) -> None:
    for _ in range(2):
        await migrating.migrate(url)
        async with SqlLedger.open(url, CLUSTER) as ledger:
            for entry in a_history():
                await ledger.post(entry, epoch=1)
            assert (await ledger.verify()).ok
        assert {name for (name,) in rows(url, OBJECTS)} >= {*tables.metadata.tables, *TRIGGERS["sqlite"]}

        await migrating.downgrade(url, revision="base")

        assert list(rows(url, OBJECTS)) == []
        assert await migrating.current_revision(url) is None


async def test_the_migrations_make_the_tables_that_the_code_declares(url: str, tmp_path: Path) -> None:
    await migrating.migrate(url)
    declared = url_of(tmp_path / "declared.db")

    migrated = create_engine(urls.parsed(url).set(drivername="sqlite"))
    made = create_engine(urls.parsed(declared).set(drivername="sqlite"))
    try:
        tables.metadata.create_all(made)
        with migrated.connect() as left, made.connect() as right:
            context = MigrationContext.configure(left, opts={"compare_type": True, "compare_server_default": True})
            assert compare_metadata(context, tables.metadata) == []
            assert constraints(left) == constraints(right)
    finally:
        migrated.dispose()
        made.dispose()


def constraints(connection: Connection) -> dict[str, object]:
    """Return the names and texts that alembic's comparison leaves out."""
    found = inspect(connection)
    return {
        table: (
            found.get_pk_constraint(table),
            sorted(found.get_unique_constraints(table), key=str),
            sorted(found.get_foreign_keys(table), key=str),
            sorted(found.get_check_constraints(table), key=str),
            sorted(found.get_indexes(table), key=str),
        )
        for table in tables.metadata.tables
    }


async def test_every_constraint_has_a_name(url: str) -> None:
    await migrating.migrate(url)
    for (text,) in rows(url, "SELECT sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'alembic%'"):
        keys = [line for line in str(text).splitlines() if "KEY" in line or "UNIQUE" in line or "CHECK" in line]
        assert keys
        assert all(line.strip().startswith("CONSTRAINT ") for line in keys)


async def test_tasks_that_migrate_at_once_wait_for_each_other(url: str) -> None:
    await asyncio.gather(*(migrating.migrate(url) for _ in range(4)))

    assert await migrating.current_revision(url) == tables.REVISION


async def test_tasks_that_migrate_different_ledgers_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Alembic keeps its context in module globals."""
    urls = [url_of(tmp_path / f"{number}.db") for number in range(4)]

    await asyncio.gather(*map(migrating.migrate, urls))

    assert [await migrating.current_revision(url) for url in urls] == [tables.REVISION] * 4


async def test_processes_that_migrate_at_once_wait_for_each_other(url: str) -> None:
    program = f"import asyncio; from admission.ledger import migrating; asyncio.run(migrating.migrate({url!r}))"
    processes = [await asyncio.create_subprocess_exec(sys.executable, "-c", program) for _ in range(3)]

    assert [await process.wait() for process in processes] == [0, 0, 0]
    assert await migrating.current_revision(url) == tables.REVISION


async def test_a_ledger_that_is_being_written_is_not_migrated_under_the_writer(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrating.migrate(url)
    monkeypatch.setattr(sessions, "BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(file_of(url), isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerAwayError, match="locked"):
            await migrating.migrate(url)


async def test_a_migration_that_fails_leaves_nothing_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "upgrade", broken_after(command.upgrade))

    with pytest.raises(RuntimeError, match="half-way"):
        await migrating.migrate(url)

    assert list(rows(url, "SELECT name FROM sqlite_master")) == []


def broken_after(upgrade: object) -> object:
    def broken(*arguments: object) -> None:
        upgrade(*arguments)  # type: ignore[operator]
        raise RuntimeError("half-way")

    return broken


async def test_a_newer_ledger_is_not_migrated(url: str) -> None:
    await migrating.migrate(url)
    tamper(url, "UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(LedgerVersionError, match=f"revision 9999, newer than this Muster's {tables.REVISION}"):
        await migrating.migrate(url)


async def test_a_file_that_is_no_database_is_not_migrated(tmp_path: Path) -> None:
    path = tmp_path / "garbage.db"
    path.write_bytes(b"garbage" * 1000)

    with pytest.raises(LedgerCorruptError, match="restore a backup"):
        await migrating.migrate(url_of(path))
    assert path.read_bytes() == b"garbage" * 1000


def test_an_installed_wheel_finds_its_migrations(tmp_path: Path) -> None:
    """Laid out as pyproject's force-include does it, away from the checkout."""
    site = tmp_path / "site"
    ignored = shutil.ignore_patterns("__pycache__", "_shipped")
    shutil.copytree(Path(admission.__file__).parent, site / "admission", ignore=ignored)
    shutil.copytree(ROOT / "migrations", site / "admission" / "_shipped" / "migrations", ignore=ignored)
    (site / "admission" / "_shipped" / "config").mkdir()
    (site / "migrations").mkdir()  # another project's
    program = (
        "import asyncio; from admission import resources; from admission.ledger import migrating;"
        f"asyncio.run(migrating.migrate({url_of(tmp_path / 'ledger.db')!r}));"
        "print(resources.migrations()); print(resources.config())"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    shipped = site / "admission" / "_shipped"
    assert done.stdout.splitlines() == [str(shipped / "migrations"), str(shipped / "config")]


def test_a_checkout_finds_its_own() -> None:
    assert resources.migrations() == ROOT / "migrations"
    assert resources.config() == ROOT / "config"


def test_a_folder_that_is_nowhere_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "admission")

    with pytest.raises(FileNotFoundError, match="'migrations' is neither in"):
        resources.migrations()
