"""`muster ledger close`: moves past periods into archives."""

import getpass
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from admission.cli import apps, terminal
from admission.cli.config_command import ConfigOption
from admission.cli.ledger import options
from admission.cli.ledger.options import ClusterOption, DatabaseOption, ZoneOption
from admission.cli.terminal import Format
from admission.errors import FixError
from admission.ledger.audit.close_period import Order
from admission.ledger.journal.carry_forward import Carried
from admission.ledger.sql_ledger import SqlLedger
from admission.settings import Ledger

EPILOG = apps.epilog(
    (
        "muster ledger close --before 2026-09-01 --archive /var/lib/muster/archive",
        "muster ledger close --before 2026-09-01 --time-zone Europe/Berlin --archive /archive",
        "muster ledger verify --archive /var/lib/muster/archive",
    ),
    "Closes the books through the last mark (usage entry) at or before the time; a running controller makes one every "
    "full hour. What is closed is verified first. Balances, what is open and the use of the period are carried "
    "forward, so that budgets, fair shares and everything from then on stay as they are. Keep the archives: "
    "`verify --archive` replays them. It may be run while the controller works.",
    "Exit codes: 0 done, or there is nothing to close; 1 the database does not answer, the books are damaged, or "
    "somebody else closes them; 2 the time or the folder is wrong.",
)


def close(
    *,
    before: Annotated[str, typer.Option("--before", help="Date or time; what is before it is closed.")],
    archive: Annotated[Path, typer.Option("--archive", help="Folder for the archive; made where there is none.")],
    reason: Annotated[str, typer.Option("--reason", help="Why, for those who read the books.")] = "the period is over",
    zone: ZoneOption = "UTC",
    output: Annotated[Format, typer.Option("--format", "-o", help="A sentence, or one JSON object.")] = Format.TEXT,
    database: DatabaseOption = None,
    cluster: ClusterOption = None,
    config: ConfigOption = None,
) -> None:
    """Close the books before a time: archive their rows, and carry forward what they come to."""
    settings = options.settings(config, database, cluster)
    now = datetime.now(UTC)
    order = Order(
        before=_check_before(options.time("--before", before, options.zone(zone)), settings, now),
        folder=archive,
        actor=f"{getpass.getuser()}@{socket.gethostname()}",
        reason=reason.strip(),
        at=now,
    )

    async def close_period(ledger: SqlLedger) -> Carried | None:
        return await ledger.close_period(order)

    carried = options.query(settings, close_period)
    if output is Format.JSON:
        terminal.as_json(_json(settings.cluster, carried))
    elif carried is None:
        terminal.say(f"nothing to close: cluster {settings.cluster} has no open mark at or before {before}")
    else:
        terminal.say(
            f"closed the books of cluster {carried.cluster} through transaction {carried.sequence} of"
            f" {options.instant(carried.marked)}: {carried.transactions} transactions in {archive / carried.archive}"
            f" (SHA-256 {carried.archive_digest})"
        )


def _check_before(before: datetime, settings: Ledger, now: datetime) -> datetime:
    latest = now - timedelta(days=settings.open_days)
    if before > now:
        raise FixError(f"--before: {options.instant(before)} is not over yet")
    if before > latest:
        raise FixError(
            f"--before: {options.instant(before)} is too young: the settings keep {settings.open_days} days open"
            f" (ledger.open_days), so close what is before {options.instant(latest.replace(microsecond=0))}"
        )
    return before


def _json(cluster: str, carried: Carried | None) -> dict[str, Any]:
    if carried is None:
        return {"cluster": cluster, "closed": False}
    return {
        "cluster": cluster,
        "closed": True,
        "sequence": carried.sequence,
        "until": options.instant(carried.marked),
        "transactions": carried.transactions,
        "archive": carried.archive,
        "sha256": carried.archive_digest,
    }
