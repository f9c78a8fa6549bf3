"""Books of a year, written fast: gangs that come, run and go in a hundred queues, with marks and right digests.

Rows are made as `admission.ledger.journal.post` makes them, but without the books beside them; `verify` finds nothing
wrong.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import insert, update
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.ledger.db import bulk_insert, database_url, engines
from admission.ledger.db.tables import GENESIS, balances, clusters, postings, transactions
from admission.ledger.journal import hash_chain
from admission.ledger.journal.hash_chain import HashedFields, Line

CLUSTER = "bench"
START = datetime(2026, 1, 1, tzinfo=UTC)
LENGTH = timedelta(days=365)
QUEUES = tuple(f"team-{number}" for number in range(100))
METER = "gpu"
RUNNING = 200
"""Gangs that run at a time."""

DEVICES = 2
"""Of a claim."""

MARKED = 1_000
"""Gangs between two marks."""

LINES_PER_GANG = 10.5
"""Of its reservation, settlement and release, with one or two claims."""

_BATCH = 5_000
_ACTOR = "muster-7d9c5b7f4-x2k9p"


class Transaction(NamedTuple):
    said: HashedFields
    lines: list[Line]


class _Gang(NamedTuple):
    number: int
    queue: str
    claims: tuple[str, ...]


def transactions_of(lines: int) -> Iterator[Transaction]:
    """Yield a year's transactions, with about so many lines."""
    gangs = max(RUNNING + 1, round(lines / LINES_PER_GANG))
    step = LENGTH / (3 * gangs + 1)
    clock = (START + step * number for number in itertools.count(1))
    books = _Books()
    for queue in QUEUES:
        yield _grant(queue, START)
    running: list[_Gang] = []
    for number in range(gangs):
        gang = _Gang(
            number, QUEUES[number % len(QUEUES)], tuple(_uid("claim", number, n) for n in range(1 + number % 2))
        )
        yield _reserve(gang, next(clock))
        yield books.moved(_settle(gang, at := next(clock)), at)
        running.append(gang)
        if len(running) > RUNNING:
            yield books.moved(_release(running.pop(0), at := next(clock)), at)
            if number % MARKED == 0:
                yield books.mark(at.replace(microsecond=0))
    for gang in running:
        yield books.moved(_release(gang, at := next(clock)), at)


async def fill(url: str, lines: int) -> int:
    """Write about so many lines into an empty, migrated ledger; return how many transactions they are."""
    parsed = database_url.parsed(url)
    sums: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    sequence, digest = 0, GENESIS
    made = transactions_of(lines)
    async with engines.engine(parsed) as engine:
        while batch := list(itertools.islice(made, _BATCH)):
            async with engines.writing(engine, seconds=engines.PATIENT_SECONDS) as connection:
                if not sequence:
                    head = {"cluster": CLUSTER, "epoch": 1, "sequence": 0, "digest": digest}
                    await connection.execute(insert(clusters).values(head))
                digest = await _write(connection, batch, sequence, digest)
            sequence += len(batch)
            for line in itertools.chain.from_iterable(transaction.lines for transaction in batch):
                sums[line[:3]] += int(line[3])
        async with engines.writing(engine) as connection:
            await connection.execute(update(clusters).values(sequence=sequence, digest=digest))
            await bulk_insert.insert(connection, balances, [(CLUSTER, *of, str(amount)) for of, amount in sums.items()])
    return sequence


async def _write(connection: AsyncConnection, batch: list[Transaction], after: int, previous: str) -> str:
    """Write transactions behind the ones that are there; return the last digest."""
    rows, lines = [], []
    for sequence, (said, said_lines) in enumerate(batch, after + 1):
        digest = hash_chain.chained(CLUSTER, 1, sequence, previous, said, said_lines)
        kind, key, *rest = said
        rows.append((CLUSTER, sequence, hash_chain.FORMAT, 1, key, kind, *rest, previous, digest))
        lines += [(CLUSTER, sequence, number, *line) for number, line in enumerate(said_lines, 1)]
        previous = digest
    await bulk_insert.insert(connection, transactions, rows)
    await bulk_insert.insert(connection, postings, lines)
    return previous


class _Books:
    """What each queue uses, and its meter-seconds since the mark."""

    def __init__(self) -> None:
        self.marked = START
        self._used = dict.fromkeys(QUEUES, 0)
        self._since = dict.fromkeys(QUEUES, START)
        self._seconds = dict.fromkeys(QUEUES, 0)

    def moved(self, transaction: Transaction, at: datetime) -> Transaction:
        queue = transaction.said.queue
        self._accrue(queue, at)
        self._used[queue] += sum(int(line[3]) for line in transaction.lines if line[2] == "used")
        return transaction

    def _accrue(self, queue: str, at: datetime) -> None:
        now = max(self._since[queue], at.replace(microsecond=0))
        self._seconds[queue] += self._used[queue] * ((now - self._since[queue]) // timedelta(seconds=1))
        self._since[queue] = now

    def mark(self, at: datetime) -> Transaction:
        for queue in QUEUES:
            self._accrue(queue, at)
        lines = [
            (queue, METER, bucket, str(sign * seconds), "")
            for queue, seconds in self._seconds.items()
            if seconds
            for bucket, sign in (("supply", -1), ("spent", 1))
        ]
        self.marked = at
        self._seconds = dict.fromkeys(QUEUES, 0)
        key = f"usage:{hash_chain.instant(at)}"
        return Transaction(_said("usage", key, at, "what was used since the mark before", ""), lines)


def _uid(kind: str, number: int, part: int = 0) -> str:
    """Return what has the length and the look of a UID."""
    return f"{number:08x}-{part:04x}-4000-8000-{kind.encode().hex():0>12}"[:36]


def _said(  # noqa: PLR0917
    kind: str, key: str, at: datetime, reason: str, queue: str, gang: _Gang | None = None, **opened: str
) -> HashedFields:
    return HashedFields(
        kind=kind,
        key=key,
        at=hash_chain.instant(at),
        actor=_ACTOR,
        reason=reason,
        queue=queue,
        on_behalf_of=f"Job research/train-{gang.number}" if gang else "",
        user="system:serviceaccount:research:pipeline" if gang else "",
        gang_uid=_uid("gang", gang.number) if gang else "",
        gang=f"research/train-{gang.number}" if gang else "",
        seats=opened.get("seats", "[]"),
        holdings=opened.get("holdings", "[]"),
        closes=opened.get("closes", "[]"),
    )


def _grant(queue: str, at: datetime) -> Transaction:
    lines: list[Line] = [(queue, METER, "entitlement", "-64", ""), (queue, METER, "free", "64", "")]
    return Transaction(_said("grant", f"grant:{queue}", at, "nominal quota of gpu changed by +64", queue), lines)


def _reserve(gang: _Gang, at: datetime) -> Transaction:
    seats = ",".join(
        f'{{"claims":["{claim}"],"node":"node-{gang.number % 64}","pod":"research/train-{gang.number}-{n}",'
        f'"pod_uid":"{_uid("pod", gang.number, n)}"}}'
        for n, claim in enumerate(gang.claims)
    )
    return Transaction(
        _said(
            "reserve",
            _key("reserve", gang),
            at,
            "it fits quota, order and the cluster",
            gang.queue,
            gang,
            seats=f"[{seats}]",
            holdings=_holdings(gang, 8, settled=False),
        ),
        [
            (gang.queue, METER, bucket, amount, claim)
            for claim in gang.claims
            for bucket, amount in (("free", "-8"), ("reserved", "8"))
        ],
    )


def _settle(gang: _Gang, at: datetime) -> Transaction:
    holdings = _holdings(gang, 7, settled=True)
    said = _said("settle", _key("settle", gang), at, "the claims were allocated", gang.queue, gang, holdings=holdings)
    return Transaction(
        said,
        [
            (gang.queue, METER, bucket, amount, claim)
            for claim in gang.claims
            for bucket, amount in (("reserved", "-8"), ("used", "7"), ("free", "1"))
        ],
    )


def _release(gang: _Gang, at: datetime) -> Transaction:
    pods = [_uid("pod", gang.number, n) for n in range(len(gang.claims))]
    closes = "[" + ",".join(f'"{uid}"' for uid in (*pods, *gang.claims)) + "]"
    return Transaction(
        _said("release", _key("release", gang), at, "its pods are gone", gang.queue, gang, closes=closes),
        [
            (gang.queue, METER, bucket, amount, claim)
            for claim in gang.claims
            for bucket, amount in (("used", "-7"), ("free", "7"))
        ],
    )


def _key(kind: str, gang: _Gang) -> str:
    return f"{kind}:{gang.number:040x}"


def _holdings(gang: _Gang, amount: int, *, settled: bool) -> str:
    node = f"node-{gang.number % 64}"
    devices = ",".join(f'["gpus","gpu.example.com","{node}","gpu-{n}"]' for n in range(DEVICES))
    one = (
        f'{{"charge":{{"gpu":"{amount}"}},"claim":"research/train-{gang.number}-%d","claim_uid":"%s",'
        f'"classes":{{"gpu.example.com":{DEVICES}}},"devices":[{devices}],"settled":{str(settled).lower()}}}'
    )
    return "[" + ",".join(one % (n, claim) for n, claim in enumerate(gang.claims)) + "]"
