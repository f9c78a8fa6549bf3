"""`muster ledger statement`: the movements on a queue's account, each with the balance after it."""

from collections.abc import Iterable, Mapping
from datetime import tzinfo
from typing import Annotated, Any

import typer

from admission.accounting.accruals import QueueMeter
from admission.api.values import quantities
from admission.api.values.names import QueueName
from admission.cli import apps, terminal
from admission.cli.config_command import ConfigOption
from admission.cli.ledger import options, used_columns
from admission.cli.ledger.options import ClusterOption, DatabaseOption, FromOption, ToOption, ZoneOption
from admission.cli.terminal import Format, Number
from admission.errors import FixError
from admission.ledger.journal import base
from admission.ledger.reports import statement as reports_statement, time_series, utilization
from admission.ledger.reports.statement import Amounts, Statement, StatementLine
from admission.ledger.reports.usage_report import Key
from admission.ledger.reports.utilization import Utilization
from admission.ledger.sql_ledger import SqlLedger

Did = Mapping[str, Utilization]
"""What the devices of each queue did, as far as it was recorded."""

EPILOG = apps.epilog(
    (
        "muster ledger statement",
        "muster ledger statement team-a --from 2026-09-01 --to 2026-10-01",
        "muster ledger statement --format json | jq '.lines[] | select(.kind == \"evict\")'",
    ),
    "Exit codes: 0 done, 1 the database does not answer or its books are damaged, 2 the ledger, the queue or a time "
    "is wrong.",
)


def statement(
    queue: Annotated[str | None, typer.Argument(metavar="[QUEUE]", help="By default all queues.")] = None,
    *,
    start: FromOption = None,
    end: ToOption = None,
    time_zone: ZoneOption = "UTC",
    output: Annotated[Format, typer.Option("--format", "-o", help="A table, or one JSON object.")] = Format.TEXT,
    database: DatabaseOption = None,
    cluster: ClusterOption = None,
    config: ConfigOption = None,
) -> None:
    """Show every movement of a queue, or of all, with the balances after it, and those at the start and the end."""
    zone = options.zone(time_zone)
    period = options.window(start, end, zone)
    chosen = options.settings(config, database, cluster)
    name = QueueName(queue) if queue else None

    async def fetch(ledger: SqlLedger) -> tuple[Statement, Did]:
        async with ledger.snapshot() as connection:
            await options.clusters(connection, [chosen.cluster])
            known = {account_queue for account_queue, _ in await base.accounts(connection, [chosen.cluster])}
            if name is not None and name not in known:
                raise FixError(_unknown(name, chosen.cluster, known))
            window = await options.clip_to_ledger(connection, [chosen.cluster], period, start=start)
            found = await reports_statement.statement(connection, chosen.cluster, name, *window)
            measured = await utilization.measured(connection, [chosen.cluster], [Key.QUEUE], window)
            return found, {of: did for (of,), did in sorted(measured.rows.items()) if name in {None, of}}

    found, did = options.query(chosen, fetch)
    if output is Format.JSON:
        terminal.as_json(_json(found, did, chosen.cluster, name))
    else:
        headings = ("time", Number("no"), "entry", "queue", "gang", "meter", "change", "balance")
        terminal.table("Statement", headings, _rows(found, did, zone), empty="nothing moved in this time")


def _unknown(queue: str, cluster: str, known: Iterable[str]) -> str:
    accounts = f"those that have one are {options.listed(known)}" if known else "no queue has one yet"
    return f"QUEUE: {queue!r} has no account in the books of cluster {cluster}; {accounts}"


def _rows(found: Statement, did: Did, zone: tzinfo) -> list[tuple[object, ...]]:
    end = found.end.astimezone(zone).strftime(_TIME)
    return [
        *_balance_rows(found.opening, "opening", found.start.astimezone(zone).strftime(_TIME)),
        *(_row(line, zone) for line in found.lines),
        *_balance_rows(found.closing, "closing", end),
        *((end, "", "measured", queue, "-", "-", "", used_columns.sentence(one)) for queue, one in did.items()),
    ]


_TIME = "%Y-%m-%d %H:%M:%S"


def _balance_rows(amounts: Mapping[QueueMeter, Amounts], word: str, time: str) -> Iterable[tuple[object, ...]]:
    for (queue, meter), amount in sorted(amounts.items()):
        yield time, "", word, queue, "-", meter, "", _balance(amount)


def _row(line: StatementLine, zone: tzinfo) -> tuple[object, ...]:
    return (
        line.at.astimezone(zone).strftime(_TIME),
        line.sequence,
        line.kind,
        line.queue,
        line.gang or "-",
        line.meter,
        _change(line.change),
        _balance(line.balance),
    )


def _change(change: Amounts) -> str:
    changes = [(name, amount) for name, amount in zip(("quota", "reserved", "used"), change[:3], strict=True) if amount]
    texts = [f"{name} {'+' if amount > 0 else '-'}{quantities.render(abs(amount))}" for name, amount in changes]
    return ", ".join([*texts, *([f"spent +{time_series.decimal(change.spent)} h"] if change.spent else [])])


def _balance(balance: Amounts) -> str:
    in_use = quantities.render(balance.reserved + balance.used)
    spent = f", {time_series.decimal(balance.spent)} h spent" if balance.spent else ""
    return f"{in_use} of {quantities.render(balance.nominal)} taken{spent}"


def _json(found: Statement, did: Did, cluster: str, queue: str | None) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "queue": queue,
        "start": options.instant(found.start),
        "end": options.instant(found.end),
        "opening": _balances(found.opening),
        "lines": [_line(line) for line in found.lines],
        "closing": _balances(found.closing),
        "measured": [{"queue": of, **used_columns.as_json(one)} for of, one in did.items()],
    }


def _balances(amounts: Mapping[QueueMeter, Amounts]) -> list[dict[str, Any]]:
    return [
        {"queue": queue, "meter": meter, "balance": _amounts(amount)}
        for (queue, meter), amount in sorted(amounts.items())
    ]


def _line(line: StatementLine) -> dict[str, Any]:
    return {
        "at": options.instant(line.at),
        "sequence": line.sequence,
        "kind": line.kind,
        "queue": line.queue,
        "gang": line.gang,
        "onBehalfOf": line.on_behalf_of,
        "user": line.user,
        "actor": line.actor,
        "reason": line.reason,
        "meter": line.meter,
        "change": _amounts(line.change),
        "balance": _amounts(line.balance),
    }


def _amounts(amounts: Amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts._asdict().items()}
