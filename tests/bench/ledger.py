"""The ledger: durable postings beside pgbench and raw sqlite3, verification, and a statement out of many postings.

One writer, in batches of a controller's cycle: each batch reserves some gangs, settles those of the batch before and
releases those of the one before that. pgbench (prepared statements, one client) and sqlite3 write the same rows into
the same tables, indexes and triggers, in the same SQL transactions, flushed to the disk by the same settings; they make
nothing up and check nothing. Goals (issue 5): ≥ 0.5 of both; ≥ 50,000 transactions verified a second; the statement of
one queue and month out of 5 million postings < 200 ms.
"""

import asyncio
import re
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

import aiosqlite
import pytest
from rich.table import Table

from admission.accounting import books
from admission.accounting.books import Allocated, Book
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.ledger_entries import Entry, Holding, Seat
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.ledger.db import migrations
from admission.ledger.sql_ledger import SqlLedger
from tests.bench import pgscript, years
from tests.postgres import Server, programs, query

GANGS = 32
"""That a batch reserves, settles and releases each: 96 transactions."""

BATCHES = 60
WARM = 3
"""Batches before the clock starts, which prepare statements and fill the first pages."""

GOALS = {"ratio": 0.5, "transactions_per_second": 50_000, "statement_ms": 200}

DATABASES = ("sqlite", "postgresql")


def measure(*, rounds: int, postings: int) -> dict[str, Any]:
    """Return medians over rounds of writing, and verification and statements of so many postings, per database."""
    return {
        "rounds": rounds,
        "batch": 3 * GANGS,
        "goals": GOALS,
        "rows": [_row(database, rounds, postings) for database in DATABASES],
    }


def table(result: dict[str, Any]) -> Table:
    """Return what was measured, for people."""
    shown = Table(title=f"Ledger, batches of {result['batch']} transactions, medians of {result['rounds']} rounds")
    for column in ("", *(row["database"] for row in result["rows"]), "goal"):
        shown.add_column(column, justify="right")
    for name, title, goal in (
        ("muster", "durable postings/s", ""),
        ("plain", "the same by pgbench, sqlite3", ""),
        ("ratio", "ratio", f"≥ {GOALS['ratio']}"),
        ("postings", "postings in the books", ""),
        ("fill_s", "written in s", ""),
        ("transactions_per_second", "verified transactions/s", f"≥ {GOALS['transactions_per_second']:,}"),
        ("statement_ms", "statement of a queue and month, ms", f"< {GOALS['statement_ms']}"),
    ):
        shown.add_row(title, *(_shown(row[name]) for row in result["rows"]), goal)
    return shown


def _shown(number: float) -> str:
    return f"{number:,.2f}" if number < 10 else f"{number:,.0f}"


def _row(database: str, rounds: int, postings: int) -> dict[str, Any]:
    with _databases(database) as fresh:
        written = [_written(database, fresh) for _ in range(rounds)]
        url = fresh()
        began = time.perf_counter()
        transactions = asyncio.run(years.fill(url, postings))
        filled = time.perf_counter() - began
        medians = {
            "muster": statistics.median(muster for muster, _ in written),
            "plain": statistics.median(plain for _, plain in written),
            "ratio": statistics.median(muster / plain for muster, plain in written),
        }
        return {
            "database": database,
            **medians,
            "postings": postings,
            "fill_s": filled,
            **asyncio.run(_read(url, transactions)),
        }


@contextmanager
def _databases(database: str) -> Iterator[Callable[[], str]]:
    """Yield what makes an empty ledger, in a folder or in a server of our own, which flushes to the disk."""
    if database == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield lambda: _migrated(f"sqlite+aiosqlite:///{tempfile.mkdtemp(dir=folder)}/ledger.db")
    else:
        with Server(fsync=True) as server:
            yield lambda: _migrated(server.database())


def _migrated(url: str) -> str:
    asyncio.run(migrations.migrate(url))
    return url


def _written(database: str, fresh: Callable[[], str]) -> tuple[float, float]:
    """Return the postings/s of the ledger and of the plain program that writes the same."""
    batches = _batches(WARM + BATCHES)
    lines = sum(len(entry.postings) for batch in batches[WARM:] for entry in batch)
    url, other = fresh(), fresh()
    seconds, statements = asyncio.run(_post(url, batches))
    plain = _replay(other, statements) if database == "sqlite" else _pgbench(url, other)
    return lines / seconds, lines / plain


def _batches(count: int) -> list[list[Entry]]:
    """Return batches as a controller posts them; the first two have nothing to settle, or to release."""
    book = Book()
    batches: list[list[Entry]] = []
    for number in range(count):
        at = datetime.fromtimestamp(years.START.timestamp() + number, UTC)
        entries = [_reserved(number * GANGS + gang, at) for gang in range(GANGS)]
        if not number:
            entries = [books.grant(_queue(q), _METER, 10**6, at=at, actor=_ACTOR) for q in range(10)] + entries
        for placement in book.placements.values():
            if placement.settled:
                removed = books.release(
                    placement, pods=placement.seats, claims=placement.holdings, at=at, actor=_ACTOR, reason="it is done"
                )
                assert removed is not None
                entries.append(removed)
            else:
                real = {uid: Allocated(held.devices, {_METER: 7}) for uid, held in placement.holdings.items()}
                settled = books.settle(placement, real, at=at, actor=_ACTOR)
                assert settled is not None
                entries.append(settled)
        book = book.apply_all(entries)
        batches.append(entries)
    return batches


_ACTOR = "muster-7d9c5b7f4-x2k9p"
_METER = MeterName("gpu")


def _queue(number: int) -> QueueName:
    return QueueName(f"team-{number % 10}")


def _reserved(number: int, at: datetime) -> Entry:
    """Return the reservation of a gang with one or two claims of eight devices."""
    claims = [Uid(f"{number:08x}-{part:04x}-4000-8000-00636c61696d") for part in range(1 + number % 2)]
    node = f"node-{number % 64}"
    devices = tuple(
        RequestDevice(request="gpus", device=DeviceId("gpu.example.com", node, f"gpu-{n}")) for n in range(8)
    )
    gang = f"research/train-{number}"
    return books.reserve(
        gang_uid=GangUid(f"{number:08x}-0000-4000-8000-000067616e67"),
        gang=gang,
        queue=_queue(number),
        user="system:serviceaccount:research:pipeline",
        seats=[
            Seat(
                pod_uid=Uid(claim.replace("636c61696d", "0000706f64")),
                pod=f"{gang}-{n}",
                node=NodeName(node),
                claims=(claim,),
            )
            for n, claim in enumerate(claims)
        ],
        holdings=[
            Holding(
                claim_uid=claim,
                claim=f"{gang}-{n}",
                devices=devices,
                charge={_METER: 8},
                classes={"gpu.example.com": 8},
            )
            for n, claim in enumerate(claims)
        ],
        at=at,
        actor=_ACTOR,
        reason="it fits quota, order and the cluster",
        on_behalf_of=f"Job {gang}",
    )


Statement = tuple[str, Any, bool]
"""Text, parameters, and whether these are many."""


async def _post(url: str, batches: list[list[Entry]]) -> tuple[float, list[list[Statement]]]:
    """Return the seconds of all batches but the first, and what SQLite's driver was given to write, by batch."""
    written: list[list[Statement]] = []
    async with SqlLedger.open(url, years.CLUSTER) as ledger:
        with _noted(written):
            began = 0.0
            for number, batch in enumerate(batches):
                if number == WARM:
                    _analyze(url)
                    began = time.perf_counter()
                written.append([])
                await ledger.post_all(batch, epoch=1)
            return time.perf_counter() - began, written


@contextmanager
def _noted(written: list[list[Statement]]) -> Iterator[None]:
    """Note what goes to the driver to be written."""
    with pytest.MonkeyPatch.context() as patch:
        for name, many in (("execute", False), ("executemany", True)):
            patch.setattr(aiosqlite.Connection, name, _noting(getattr(aiosqlite.Connection, name), written, many=many))
        yield


def _noting(run: Callable[..., Any], written: list[list[Statement]], *, many: bool) -> Callable[..., Any]:
    def noting(self: aiosqlite.Connection, statement: str, parameters: Any = ()) -> Any:
        written[-1].append((statement, parameters, many))
        return run(self, statement, parameters)

    return noting


def _analyze(url: str) -> None:
    """Do to a young database what PostgreSQL's autovacuum does within a minute: until then it guesses at plans."""
    if url.startswith("postgresql"):
        query(url, "ANALYZE")


_FIRST = "INSERT INTO clusters VALUES (?, 1, 0, '') ON CONFLICT DO NOTHING"
_HEAD = "UPDATE clusters SET sequence = sequence + ?, digest = ? WHERE cluster = ?"
"""Of these, SQLAlchemy speaks to the driver by cursors."""


def _replay(url: str, batches: list[list[Statement]]) -> float:
    """Write the same with sqlite3 alone; return the seconds of all batches but the first."""
    with closing(sqlite3.connect(url.partition(":///")[2], isolation_level=None)) as connection:
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {pragma}")
        began = 0.0
        for number, batch in enumerate(batches):
            if number == WARM:
                began = time.perf_counter()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_FIRST, (years.CLUSTER,))
            connection.execute(_HEAD, (len(batch), "0" * 64, years.CLUSTER))
            for statement, parameters, many in batch:
                (connection.executemany if many else connection.execute)(statement, parameters)
            connection.execute("COMMIT")
        return time.perf_counter() - began


def _pgbench(url: str, other: str) -> float:
    """Return the seconds that pgbench takes to write as many batches as the ledger has written."""
    prepared, script = pgscript.of(url, years.CLUSTER, 3 * GANGS)
    query(other, *prepared)
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        _run_pgbench(other, file.name, first=0, runs=WARM)
        _analyze(other)
        return BATCHES / _run_pgbench(other, file.name, first=WARM * 3 * GANGS, runs=BATCHES)


def _run_pgbench(url: str, script: str, *, first: int, runs: int) -> float:
    """Return how many runs of a script pgbench does in a second, whose first transaction has this number."""
    host, _, rest = url.partition("@")[2].partition(":")
    port, _, name = rest.partition("/")
    words = ["-n", "-M", "prepared", "-c", "1", "-t", str(runs), "-D", f"n={first}", "-f", script]
    done = subprocess.run(
        [programs.folder() / "pgbench", *words, "-h", host, "-p", port, "-U", "muster", name],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"^tps = ([\d.]+)", done.stdout, re.MULTILINE)
    if done.returncode or found is None:
        raise RuntimeError(f"pgbench: {done.stderr[-2000:]}")
    return float(found[1])


async def _read(url: str, transactions: int) -> dict[str, float]:
    async with SqlLedger.open(url, years.CLUSTER) as ledger:
        verified = await _seconds(ledger.verify)
        month = datetime(2026, 6, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC)
        times = [await _seconds(lambda: ledger.statement(QueueName(years.QUEUES[7]), *month)) for _ in range(5)]
    return {
        "transactions": transactions,
        "transactions_per_second": transactions / verified,
        "statement_ms": 1000 * statistics.median(times),
    }


async def _seconds(work: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    result = await work()
    assert getattr(result, "ok", True), result
    return time.perf_counter() - began
