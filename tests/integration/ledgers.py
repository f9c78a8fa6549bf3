"""What the ledger's tests share: a migrated file, a short history, and a way past the triggers."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from admission.api.devices import DeviceId
from admission.api.entries import Entry, Holding, RequestDevice, Seat
from admission.api.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.ledger import migrating
from admission.quota import books
from admission.quota.books import Allocated, Book

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUEUE = QueueName("team-a")
GPU = MeterName("gpu")
CLUSTER = "east"

TRIGGERS = [f"{table}_refuse_{verb}" for table in ("transactions", "postings") for verb in ("update", "delete")]

_schema: list[bytes] = []


def url_of(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"


def file_of(url: str) -> Path:
    return Path(url.partition(":///")[2])


async def a_ledger(folder: Path) -> str:
    """Return the URL of a new ledger. The schema is made once and copied."""
    url = url_of(folder / "ledger.db")
    if not _schema:
        await migrating.migrate(url)
        _schema.append(file_of(url).read_bytes())
    file_of(url).write_bytes(_schema[0])
    return url


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
    """Change a ledger's file as somebody would who has write access and drops the triggers first."""
    with closing(sqlite3.connect(file_of(url), isolation_level=None)) as connection:
        for statement in (*(f"DROP TRIGGER {name}" for name in TRIGGERS), *statements):
            connection.execute(statement)


def rows(url: str, statement: str) -> Iterator[tuple[object, ...]]:
    with closing(sqlite3.connect(file_of(url))) as connection:
        yield from connection.execute(statement).fetchall()
