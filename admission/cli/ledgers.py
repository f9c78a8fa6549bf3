"""`muster ledger`: the books."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeVar

import typer

from admission.api import quantities
from admission.api.names import QueueName
from admission.cli import applications, rendering, serving
from admission.cli.rendering import Format, Number
from admission.cli.serving import ConfigOption
from admission.errors import MendError
from admission.ledger import migrating
from admission.ledger.ledger import SqlLedger
from admission.ledger.reporting import Amounts, StatementLine
from admission.ledger.verifying import Verification
from admission.settings import Ledger

T = TypeVar("T")

BROKEN = 3

app = applications.group()

DatabaseOption = Annotated[
    str | None, typer.Option("--database", "-d", help="SQLAlchemy URL; by default that of the settings.")
]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", help="The cluster's name in the ledger; by default that of the settings.")
]

MIGRATE_EPILOG = applications.epilog(
    (
        "muster ledger migrate --database sqlite:////var/lib/muster/ledger.db",
        "muster ledger migrate --database postgresql://muster@db/muster",
    ),
    "Exit codes: 0 the schema is up to date, 1 the database does not answer, 2 it is newer than this "
    "Muster or no ledger.",
)

STATEMENT_EPILOG = applications.epilog(
    (
        "muster ledger statement",
        "muster ledger statement team-a --from 2026-09-01 --to 2026-10-01",
        "muster ledger statement --format json | jq '.lines[] | select(.kind == \"evict\")'",
    ),
    "Exit codes: 0 done, 1 the database does not answer or its books are damaged, 2 the ledger or a time is wrong.",
)

VERIFY_EPILOG = applications.epilog(
    (
        "muster ledger verify",
        "muster ledger verify --database sqlite:///copy-of-the-ledger.db --format json",
    ),
    "Exit codes: 0 the books are what was written, 3 they are not, 1 the database does not answer, 2 "
    "there is no ledger.",
)


@app.callback()
def _group() -> None:
    """The ledger: schema, statements, and proof."""


@app.command(epilog=MIGRATE_EPILOG)
def migrate(*, database: DatabaseOption = None, config: ConfigOption = None) -> None:
    """Create the ledger's tables, or bring them up to date. Harmless when they are."""
    url = _ledger(config, database, None).url

    async def upgrade() -> str | None:
        await migrating.migrate(url)
        return await migrating.current_revision(url)

    rendering.say(f"the ledger is at revision {asyncio.run(upgrade())}")


@app.command(epilog=STATEMENT_EPILOG)
def statement(
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="By default all queues.")] = None,
    *,
    start: Annotated[str | None, typer.Option("--from", help="Date or time; by default 30 days ago.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Date or time, not included; by default now.")] = None,
    output: Annotated[Format, typer.Option("--format", "-o", help="A table, or one JSON object.")] = Format.TEXT,
    database: DatabaseOption = None,
    cluster: ClusterOption = None,
    config: ConfigOption = None,
) -> None:
    """Show every movement of a queue, or of all, with the balances after it."""
    until = _time("--to", end) if end else datetime.now(UTC)
    since = _time("--from", start) if start else until - timedelta(days=30)
    name = QueueName(queue) if queue else None

    async def question(ledger: SqlLedger) -> list[StatementLine]:
        return await ledger.statement(name, since, until)

    lines = _ask(_ledger(config, database, cluster), question)
    if output is Format.JSON:
        rendering.as_json({"lines": [_json(line) for line in lines]})
    else:
        headings = ("time", Number("no"), "entry", "queue", "gang", "meter", "change", "balance")
        rendering.table("Statement", headings, _rows(lines), empty="nothing moved in this time")


@app.command(epilog=VERIFY_EPILOG)
def verify(
    *,
    output: Annotated[Format, typer.Option("--format", "-o", help="A sentence, or one JSON object.")] = Format.TEXT,
    database: DatabaseOption = None,
    cluster: ClusterOption = None,
    config: ConfigOption = None,
) -> None:
    """Replay the books from the first row and compare hashes, balances and everything open."""

    async def question(ledger: SqlLedger) -> Verification:
        return await ledger.verify()

    found = _ask(_ledger(config, database, cluster), question)
    if output is Format.JSON:
        rendering.as_json(_verification(found))
    elif found.finding is None:
        rendering.say(f"the books of cluster {found.cluster} are right: {_transactions(found)}, digest {found.digest}")
    else:
        finding = found.finding
        rendering.error(
            f"the books of cluster {found.cluster} are wrong from transaction {finding.sequence} on"
            f" ({finding.what}): {finding.detail}; {_transactions(found)} before it are right"
        )
    raise typer.Exit(0 if found.ok else BROKEN)


def _ledger(config: Any, database: str | None, cluster: str | None) -> Ledger:
    return serving.settings(config, ledger={"url": database, "cluster": cluster}).ledger


def _ask(settings: Ledger, question: Callable[[SqlLedger], Awaitable[T]]) -> T:
    async def opened() -> T:
        async with SqlLedger.open(settings.url, settings.cluster) as ledger:
            return await question(ledger)

    return asyncio.run(opened())


def _time(option: str, text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise MendError(f"{option}: {text!r} is no date or time such as 2026-01-31 or 2026-01-31T12:00Z") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _rows(lines: Iterable[StatementLine]) -> list[tuple[object, ...]]:
    return [
        (
            line.at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"),
            line.sequence,
            line.kind,
            line.queue,
            line.gang or "-",
            line.meter,
            _change(line.change),
            _balance(line.balance),
        )
        for line in lines
    ]


def _change(change: Amounts) -> str:
    moved = [(name, amount) for name, amount in zip(("quota", "reserved", "used"), change, strict=True) if amount]
    return ", ".join(f"{name} {'+' if amount > 0 else '-'}{quantities.render(abs(amount))}" for name, amount in moved)


def _balance(balance: Amounts) -> str:
    taken = quantities.render(balance.reserved + balance.used)
    return f"{taken} of {quantities.render(balance.nominal)} taken"


def _json(line: StatementLine) -> dict[str, Any]:
    return {
        "at": line.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "sequence": line.sequence,
        "kind": line.kind,
        "queue": line.queue,
        "gang": line.gang,
        "onBehalfOf": line.on_behalf_of,
        "actor": line.actor,
        "reason": line.reason,
        "meter": line.meter,
        "change": {name: str(amount) for name, amount in line.change._asdict().items()},
        "balance": {name: str(amount) for name, amount in line.balance._asdict().items()},
    }


def _verification(found: Verification) -> dict[str, Any]:
    finding = found.finding
    return {
        "cluster": found.cluster,
        "ok": found.ok,
        "transactions": found.transactions,
        "digest": found.digest,
        "finding": finding and {"sequence": finding.sequence, "what": finding.what, "detail": finding.detail},
    }


def _transactions(found: Verification) -> str:
    return f"{found.transactions} transaction{'' if found.transactions == 1 else 's'}"
