"""`muster ledger`: the group, and the commands for schema and verification; the others have modules of their own."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from admission.cli import apps, terminal
from admission.cli.config_command import ConfigOption
from admission.cli.ledger import close, export, options, reconcile, report, statement
from admission.cli.ledger.options import ClusterOption, DatabaseOption
from admission.cli.terminal import Format
from admission.ledger.audit.verify import Verification
from admission.ledger.db import migrations
from admission.ledger.sql_ledger import SqlLedger

BROKEN = 3

app = apps.group()

MIGRATE_EPILOG = apps.epilog(
    (
        "muster ledger migrate --database sqlite:////var/lib/muster/ledger.db",
        "muster ledger migrate --database postgresql://muster@db/muster",
    ),
    "Exit codes: 0 the schema is up to date, 1 the database does not answer, 2 it is newer than this "
    "Muster or no ledger.",
)

VERIFY_EPILOG = apps.epilog(
    (
        "muster ledger verify",
        "muster ledger verify --database sqlite:///copy-of-the-ledger.db --format json",
        "muster ledger verify --archive /var/lib/muster/archive",
    ),
    "Where periods were closed, it begins at what the last of them carried forward, which the chain vouches for. With "
    "--archive it replays the archives too, and names the one that was changed or is missing.",
    "Exit codes: 0 the books are what was written, 3 they are not, 1 the database does not answer, 2 "
    "there is no ledger.",
)


@app.callback()
def _group() -> None:
    """The ledger: schema, statements, reports, exports, and proof."""


@app.command(epilog=MIGRATE_EPILOG)
def migrate(*, database: DatabaseOption = None, config: ConfigOption = None) -> None:
    """Create the ledger's tables, or bring them up to date. Harmless when they are."""
    url = options.settings(config, database).url

    async def upgrade() -> str | None:
        await migrations.migrate(url)
        return await migrations.current_revision(url)

    terminal.say(f"the ledger is at revision {asyncio.run(upgrade())}")


app.command(epilog=statement.EPILOG)(statement.statement)
app.command(epilog=report.EPILOG)(report.report)
app.command(epilog=export.EPILOG)(export.export)
app.command(epilog=reconcile.EPILOG)(reconcile.reconcile)
app.command(epilog=close.EPILOG)(close.close)


@app.command(epilog=VERIFY_EPILOG)
def verify(
    *,
    archive: Annotated[
        Path | None, typer.Option("--archive", help="Folder with the archives of closed periods, to replay them too.")
    ] = None,
    output: Annotated[Format, typer.Option("--format", "-o", help="A sentence, or one JSON object.")] = Format.TEXT,
    database: DatabaseOption = None,
    cluster: ClusterOption = None,
    config: ConfigOption = None,
) -> None:
    """Replay the books from the first row and compare hashes, balances and everything open."""

    async def question(ledger: SqlLedger) -> Verification:
        return await ledger.verify(archive=archive)

    found = options.query(options.settings(config, database, cluster), question)
    if output is Format.JSON:
        terminal.as_json(_verification(found))
    elif found.finding is None:
        terminal.say(f"the books of cluster {found.cluster} are right: {_transactions(found)}, digest {found.digest}")
    else:
        finding = found.finding
        terminal.error(
            f"the books of cluster {found.cluster} are wrong from transaction {finding.sequence} on"
            f" ({finding.what}): {finding.detail}; {_transactions(found)} before it are right"
        )
    raise typer.Exit(0 if found.ok else BROKEN)


def _verification(found: Verification) -> dict[str, Any]:
    finding = found.finding
    return {
        "cluster": found.cluster,
        "ok": found.ok,
        "transactions": found.transactions,
        "closed": found.closed,
        "digest": found.digest,
        "finding": finding and {"sequence": finding.sequence, "what": finding.what, "detail": finding.detail},
    }


def _transactions(found: Verification) -> str:
    counted = f"{found.transactions} transaction{'' if found.transactions == 1 else 's'}"
    return f"{counted}, {found.closed} of them archived" if found.closed else counted
