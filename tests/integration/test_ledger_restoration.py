"""Books of yesterday beside a cluster of today: docs/runbook.md's backup, restoration and reconciliation."""

import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from admission.api.muster.ledger_entries import Kind
from admission.cycle import cycle, reconcile
from admission.ledger.sql_ledger import SqlLedger
from admission.lifecycle.reconciliation import DifferenceKind
from tests.builders import a_cluster
from tests.integration import ledgers
from tests.integration.conftest import Fresh
from tests.integration.ledgers import CLUSTER
from tests.integration.test_ledger_append_only import REFUSED
from tests.postgres import programs
from tests.unit.cycle.fences import a_leader
from tests.unit.cycle.jobs import Jobs, Play
from tests.unit.cycle.test_reconciliation import Cluster, author, no_pause


def backed_up(url: str, folder: Path) -> Path:
    """Back books up as the runbook says."""
    copy = folder / "muster.backup"
    if ledgers.database_of(url) == "sqlite":
        with closing(sqlite3.connect(ledgers.file_of(url))) as connection:
            connection.execute(f"VACUUM INTO '{copy}'")
    else:
        run("pg_dump", "--format=custom", f"--file={copy}", url)
    return copy


def restored(copy: Path, new_database: Fresh) -> str:
    """Restore them into a new database, and return its URL."""
    url = new_database()
    if ledgers.database_of(url) == "sqlite":
        ledgers.file_of(url).write_bytes(copy.read_bytes())
    else:
        run("pg_restore", "--exit-on-error", "--no-owner", f"--dbname={url}", str(copy))
    return url


def run(program: str, *words: str) -> None:
    done = subprocess.run([str(programs.folder() / program), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def gone_on(url: str, folder: Path) -> tuple[Play, Path, str]:
    """Let gangs come and go, with a backup in between; return how the cluster is, the backup, and its digest."""
    play = Play(Jobs(a_cluster().node("a", gpus=8).queue("q", gpus=8)))
    play.cluster.submit("ends", queue="q", pods=2)
    play.cluster.submit("stays", queue="q", pods=1)
    await play.forget_changes(3)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        await ledger.post_all(play.ledger.entries, epoch=1)
        digest = (await ledger.verify()).digest
    copy = backed_up(url, folder)

    play.cluster.finish_job("ends")
    play.cluster.submit("late", queue="q", pods=3)
    play.cluster.submit("unseen", queue="q", pods=1)
    await play.forget_changes(3)
    play.cluster.finish_job("unseen")
    await play.forget_changes(3)
    return play, copy, digest


async def test_a_restored_older_ledger_agrees_with_the_cluster_after_reconciliation(
    url: str, new_database: Fresh, tmp_path: Path
) -> None:
    play, copy, digest = await gone_on(url, tmp_path)
    seen = Cluster(play.cluster.snapshot())

    async with SqlLedger.open(restored(copy, new_database), CLUSTER) as older:
        assert (await older.verify()).digest == digest

        found = await reconcile.compare(older, seen, no_pause)
        outcome = await reconcile.repair(older, seen, found, author)

        assert Counter(one.kind for one in found) == {
            DifferenceKind.POD_GONE: 2,
            DifferenceKind.CLAIM_GONE: 2,
            DifferenceKind.NOT_BOOKED: 3,
        }
        assert Counter(entry.kind for entry, _ in outcome.posted) == {Kind.RELEASE: 1, Kind.ADJUST: 1}
        assert outcome.left == ()
        assert (await older.load()).usage() == play.ledger.book.usage()
        assert (await older.verify()).ok


async def test_a_leader_of_restored_books_goes_on_with_the_quota_that_is_left(
    url: str, new_database: Fresh, tmp_path: Path
) -> None:
    play, copy, _ = await gone_on(url, tmp_path)
    cluster = play.cluster
    async with SqlLedger.open(restored(copy, new_database), CLUSTER) as older:
        seen = Cluster(cluster.snapshot())
        await reconcile.repair(older, seen, await reconcile.compare(older, seen, no_pause), author)
        cluster.submit("fits", queue="q", pods=4)
        cluster.submit("too-large", queue="q", pods=1)
        await older.fence(2)

        await cycle.run(a_leader(cluster, older, epoch=2), cluster.now)

        assert cluster.running() == {"stays", "late", "fits"}
        assert (await older.verify()).ok


async def test_restored_books_are_append_only_too(url: str, new_database: Fresh, tmp_path: Path) -> None:
    _, copy, _ = await gone_on(url, tmp_path)

    with pytest.raises(REFUSED, match="append-only"):
        ledgers.run(restored(copy, new_database), "UPDATE transactions SET reason = 'because'")
