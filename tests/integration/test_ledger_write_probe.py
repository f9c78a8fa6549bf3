"""`muster doctor` tries a write, which shows what reading does not, and leaves nothing behind."""

import pytest

from admission.cli.doctor import command
from admission.cli.doctor.findings import Finding, Verdict
from admission.errors import FixError, LedgerUnavailableError
from admission.ledger.db import engines
from admission.ledger.sql_ledger import SqlLedger
from admission.settings import Ledger, Settings
from tests.e2e import disks
from tests.integration import ledgers
from tests.integration.ledgers import ON_POSTGRESQL, ON_SQLITE
from tests.postgres import Server


async def looked(url: str) -> Finding:
    [found] = await command._ledger(Settings(ledger=Ledger(url=url)))
    return found


async def test_the_write_probe_of_doctor_leaves_nothing_behind(url: str, ledger: SqlLedger) -> None:
    await ledger.post_all(ledgers.a_history(), epoch=1)
    before = _rows(url)

    await engines.write(url)

    assert _rows(url) == before
    assert (await ledger.verify()).ok
    assert (await looked(url)).verdict is Verdict.OK


def _rows(url: str) -> list[list[tuple[object, ...]]]:
    return [
        ledgers.rows(url, statement)
        for statement in ("SELECT * FROM clusters", "SELECT * FROM transactions ORDER BY sequence")
    ]


@ON_POSTGRESQL
async def test_the_write_probe_reports_a_read_only_database(url: str) -> None:
    name = url.rpartition("/")[2]
    ledgers.run(url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")

    with pytest.raises(LedgerUnavailableError, match="read-only transaction"):
        await engines.write(url)
    found = await looked(url)

    assert found.verdict is Verdict.FAILED
    assert "no standby" in found.fix


@ON_POSTGRESQL
async def test_the_write_probe_reports_a_user_without_write_rights(url: str, postgres: Server) -> None:
    if not postgres.query("SELECT 1 FROM pg_roles WHERE rolname = 'reader'"):
        postgres.query("CREATE ROLE reader LOGIN")
    ledgers.run(url, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")

    with pytest.raises(FixError, match="permission denied for table clusters: grant it"):
        await engines.write(url.replace("muster@", "reader@"))


@ON_SQLITE
async def test_the_write_probe_reports_a_full_disk(url: str) -> None:
    with disks.small(megabytes=1) as disk:
        if disk is None:
            pytest.skip("only root may mount a small disk")
        there = ledgers.url_of(disk / "ledger.db")
        ledgers.file_of(there).write_bytes(ledgers.file_of(url).read_bytes())

        found = await looked(there)

        assert found.verdict is Verdict.FAILED
        assert "full" in found.message
        assert "make room on its disk" in found.message
