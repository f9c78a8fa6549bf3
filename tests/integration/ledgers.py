"""What the ledger's tests share: migrated databases, a short history, and a way past the triggers."""

import asyncio
import itertools
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from admission.accounting import books
from admission.accounting.books import Allocated, Book
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.ledger_entries import Entry, Holding, Seat
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.ledger.db import migrations
from tests.postgres import Server, query

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUEUE = QueueName("team-a")
GPU = MeterName("gpu")
CLUSTER = "east"

TRIGGERS = {
    "sqlite": [
        f"{table}_refuse_{verb}" for table in ("transactions", "postings") for verb in ("update", "delete", "insert")
    ],
    "postgresql": [
        f"{table}_refuse_{what}" for table in ("transactions", "postings") for what in ("change", "removal")
    ],
}
"""The names of the triggers that keep the books append-only."""

ON_SQLITE = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
ON_POSTGRESQL = pytest.mark.parametrize("database", ["postgresql"], indirect=True)
"""Marks of tests that hold for one kind of database alone."""

_schema: list[bytes] = []
_templates: dict[Path, str] = {}


def url_of(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"


def file_of(url: str) -> Path:
    return Path(url.partition(":///")[2])


def database_of(url: str) -> str:
    """Return the kind of database that a URL names: `sqlite` or `postgresql`."""
    return url.partition(":")[0].partition("+")[0]


def unused(folder: Path) -> Path:
    """Return a path in a folder that holds nothing yet."""
    return next(path for number in itertools.count() if not (path := folder / f"ledger{number}.db").exists())


def a_sqlite_ledger(folder: Path) -> str:
    """Return the URL of a new ledger in a file. The schema is made once and copied."""
    url = url_of(unused(folder))
    if not _schema:
        migrated(url)
        _schema.append(file_of(url).read_bytes())
    file_of(url).write_bytes(_schema[0])
    return url


async def a_ledger(folder: Path) -> str:
    """Do the same from asynchronous code."""
    return await asyncio.to_thread(a_sqlite_ledger, folder)


def template_in(server: Server) -> str:
    """Return the name of a migrated database in a server, to copy new ledgers from."""
    if server.log not in _templates:
        url = server.database()
        migrated(url)
        _templates[server.log] = url.rpartition("/")[2]
    return _templates[server.log]


def migrated(url: str) -> None:
    """Make the tables, from synchronous and async code alike."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, migrations.migrate(url)).result()


@contextmanager
def dropped(server: Server) -> Iterator[Callable[..., str]]:
    """Yield what makes databases, as copies of a template if one is named; they are dropped afterwards."""
    made: list[str] = []

    def make(template: str | None = None) -> str:
        made.append(server.database(template=template))
        return made[-1]

    yield make
    for url in made:
        server.drop(url)


def minutes(count: int) -> datetime:
    return AT + timedelta(minutes=count)


def a_grant(amount: int = 8, *, queue: QueueName = QUEUE, at: datetime = AT) -> Entry:
    return books.grant(queue, GPU, amount, at=at, actor="muster")


def a_gang(name: str = "gang", *, claims: int = 1, gpu: int = 1, at: datetime = AT, queue: QueueName = QUEUE) -> Entry:
    """Return the reservation of a gang with as many pods as claims."""
    uids = [Uid(f"{name}-claim-{number}") for number in range(claims)]
    device = RequestDevice(request="r", device=DeviceId("gpu.example", "pool", "gpu-0"))
    return books.reserve(
        gang_uid=GangUid(name),
        gang=f"ns/{name}",
        queue=queue,
        seats=[Seat(pod_uid=Uid(f"{uid}-pod"), pod="ns/pod", node=NodeName("node"), claims=(uid,)) for uid in uids],
        holdings=[Holding(claim_uid=uid, claim=f"ns/{uid}", devices=(device,), charge={GPU: gpu}) for uid in uids],
        at=at,
        actor="muster",
        reason="it fits",
        on_behalf_of="Job ns/train",
    )


def a_history() -> list[Entry]:
    """Return a grant, two reservations, a settlement, a release and an eviction that leave one gang half open."""
    entries = [a_grant(), a_gang("one", claims=2, at=minutes(1)), a_gang("two", claims=2, gpu=2, at=minutes(2))]
    one = Book.replay(entries).placements[GangUid("one")]
    settled = books.settle(
        one,
        {uid: Allocated(holding.devices, {GPU: 3}) for uid, holding in one.holdings.items()},
        at=minutes(3),
        actor="muster",
    )
    assert settled is not None
    entries.append(settled)
    one = Book.replay(entries).placements[GangUid("one")]
    claim, *_ = one.holdings
    released = books.release(
        one, pods=list(one.seats)[:1], claims=[claim], at=minutes(4), actor="muster", reason="done"
    )
    assert released is not None
    two = Book.replay(entries).placements[GangUid("two")]
    return [*entries, released, books.evict(two, at=minutes(5), actor="muster", reason="StartTimedOut")]


def tamper(url: str, *statements: str) -> None:
    """Change a ledger as somebody would who has write access and drops the triggers first."""
    run(url, *(drop_trigger(url, name) for name in TRIGGERS[database_of(url)]), *statements)


def forge(url: str, *statements: str) -> None:
    """Change what triggers keep, closings too, as somebody would who owns the database."""
    tables = ("transactions", "postings", "closings", "carried_usage", "measured_usage")
    if database_of(url) == "postgresql":
        run(url, *(f"ALTER TABLE {table} DISABLE TRIGGER USER" for table in tables), *statements)
    else:
        triggers = (f"{table}_refuse_{verb}" for table in tables for verb in ("update", "delete", "insert"))
        run(url, *(f"DROP TRIGGER {name}" for name in triggers), *statements)


def drop_trigger(url: str, name: str) -> str:
    table = name.partition("_")[0]
    return f"DROP TRIGGER {name}" + (f" ON {table}" if database_of(url) == "postgresql" else "")


def run(url: str, *statements: str) -> None:
    """Run statements in one transaction each, past Muster."""
    if database_of(url) == "postgresql":
        query(url, *statements)
        return
    with closing(sqlite3.connect(file_of(url), isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def rows(url: str, statement: str) -> list[tuple[object, ...]]:
    """Return what a statement reads, past Muster."""
    if database_of(url) == "postgresql":
        return query(url, statement)
    with closing(sqlite3.connect(file_of(url))) as connection:
        return connection.execute(statement).fetchall()
