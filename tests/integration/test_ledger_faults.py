"""Databases that are missing, of another version, damaged or full: told with the mend."""

from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from admission.errors import FixError, LedgerCorruptError, LedgerUnavailableError, LedgerVersionError
from admission.ledger import sql_ledger
from admission.ledger.db import database_url, engines, errors, tables
from admission.ledger.sql_ledger import SqlLedger
from tests.integration.ledgers import CLUSTER, ON_SQLITE, a_gang, a_grant, file_of, rows, tamper, url_of


async def test_a_ledger_that_does_not_exist_is_not_made_in_passing(tmp_path: Path) -> None:
    path = tmp_path / "none.db"

    with pytest.raises(LedgerVersionError, match=r"no ledger at .*none\.db: run `muster ledger migrate`"):
        async with SqlLedger.open(url_of(path), CLUSTER):
            pass
    assert not path.exists()


async def test_a_file_without_tables_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()

    with pytest.raises(LedgerVersionError, match=r"no tables yet: run `muster ledger migrate`"):
        async with SqlLedger.open(url_of(path), CLUSTER):
            pass


async def test_an_older_ledger_is_refused_with_the_remedy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_ledger, "REVISION", "9998")
    words = f"at revision {tables.REVISION}, older than 9998: run `muster ledger migrate`"

    with pytest.raises(LedgerVersionError, match=words):
        async with SqlLedger.open(url, CLUSTER):
            pass


async def test_a_newer_ledger_is_refused_naming_both_revisions(url: str) -> None:
    tamper(url, "UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(LedgerVersionError, match=f"9999.*{tables.REVISION}"):
        async with SqlLedger.open(url, CLUSTER):
            pass


async def test_a_file_that_is_no_database_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "garbage.db"
    path.write_bytes(b"not a database, but long enough to be taken for one" * 100)

    with pytest.raises(LedgerCorruptError, match=r"garbage\.db cannot be read .* restore a backup"):
        async with SqlLedger.open(url_of(path), CLUSTER):
            pass


def damage_seats(url: str) -> None:
    ((root,),) = rows(url, "SELECT rootpage FROM sqlite_master WHERE name = 'open_seats'")
    assert isinstance(root, int)
    with file_of(url).open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xff" * 4096)


@ON_SQLITE
async def test_a_damaged_page_is_reported_with_the_remedy(url: str) -> None:
    async with SqlLedger.open(url, CLUSTER) as ledger:
        await ledger.post(a_gang(claims=200), epoch=1)
    damage_seats(url)

    async with SqlLedger.open(url, CLUSTER) as ledger:
        with pytest.raises(LedgerCorruptError, match=r"malformed.*restore a backup"):
            await ledger.load()


@ON_SQLITE
async def test_a_full_disk_is_reported_with_the_remedy(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_ledger, "PATIENCE", 0.0)
    await ledger.post(a_grant(), epoch=1)
    async with engines.reading(ledger._engine) as connection:
        await connection.exec_driver_sql("PRAGMA max_page_count = 1")

    with pytest.raises(LedgerUnavailableError, match="disk is full: make room on its disk"):
        await ledger.post(a_gang(claims=2000), epoch=1)


async def test_a_row_beyond_the_head_stops_the_posting(url: str) -> None:
    async with SqlLedger.open(url, CLUSTER) as ledger:
        await ledger.post(a_grant(), epoch=1)
        await ledger.post(a_gang(), epoch=1)
        tamper(url, "UPDATE clusters SET sequence = 1")

        with pytest.raises(LedgerCorruptError, match="run `muster ledger verify`"):
            await ledger.post(a_gang("other"), epoch=1)


class PostgresqlError(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__("as PostgreSQL says")
        self.sqlstate = sqlstate


FAILURES = {
    "a lost connection": ("08006", LedgerUnavailableError),
    "a deadlock": ("40P01", LedgerUnavailableError),
    "too many connections": ("53300", LedgerUnavailableError),
    "a lock that is not to be had": ("55P03", LedgerUnavailableError),
    "a shutdown": ("57P01", LedgerUnavailableError),
    "no such database": ("3D000", FixError),
    "a wrong password": ("28P01", FixError),
    "no permission": ("42501", FixError),
}


@pytest.mark.parametrize(("state", "meant"), FAILURES.values(), ids=FAILURES)
def test_an_error_of_postgresql_becomes_an_error_of_muster(state: str, meant: type[Exception]) -> None:
    url = database_url.parsed("postgresql://muster@db/muster")
    with pytest.raises(meant, match="as PostgreSQL says"), errors.translated(url):
        raise DBAPIError("SELECT 1", {}, PostgresqlError(state))
