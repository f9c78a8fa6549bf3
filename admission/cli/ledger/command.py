"""`muster ledger`: the group, and the command for the schema; the others have modules of their own."""

import asyncio

from admission.cli import apps, terminal
from admission.cli.config_command import ConfigOption
from admission.cli.ledger import close, export, heads, options, reconcile, report, statement, verify
from admission.cli.ledger.options import DatabaseOption
from admission.ledger.db import migrations

app = apps.group()

MIGRATE_EPILOG = apps.epilog(
    (
        "muster ledger migrate --database sqlite:////var/lib/muster/ledger.db",
        "muster ledger migrate --database postgresql://muster@db/muster",
    ),
    "Exit codes: 0 the schema is up to date, 1 the database does not answer, 2 it is newer than this "
    "Muster or no ledger.",
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
app.command(epilog=heads.EPILOG)(heads.heads)
app.command(epilog=verify.EPILOG)(verify.verify)
