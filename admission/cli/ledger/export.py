"""`muster ledger export`: the ledger for other programs, as CSV, JSON Lines, Parquet, or in FOCUS's columns."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from enum import StrEnum
from typing import IO, Annotated, TypeVar

import typer
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting import accruals
from admission.api.values.names import MeterName
from admission.cli import apps, terminal
from admission.cli.config_command import ConfigOption
from admission.cli.ledger import export_sinks, options
from admission.cli.ledger.export_sinks import Sink
from admission.cli.ledger.options import (
    AllClustersOption,
    ClustersOption,
    DatabaseOption,
    FromOption,
    ToOption,
    ZoneOption,
)
from admission.errors import AmountError, FixError
from admission.ledger.journal.base import Window
from admission.ledger.reports import export as reports_export, focus
from admission.ledger.reports.allocation_intervals import Progress
from admission.ledger.reports.export import Column, Row, What
from admission.ledger.reports.focus import Granularity, Price, Terms
from admission.ledger.sql_ledger import SqlLedger

T = TypeVar("T")

EPILOG = apps.epilog(
    (
        "muster ledger export --from 2026-09-01 --to 2026-10-01 > entries.csv",
        "muster ledger export --what usage --format jsonl --all-clusters | jq 'select(.user == \"\")'",
        "muster ledger export --what postings --format parquet --from 2026-01-01 --output postings.parquet",
        "muster ledger export --format focus --from 2026-09-01 --price gpu=2.25 --currency EUR --output focus.csv",
    ),
    f"focus is CSV in the columns of the FinOps FOCUS specification, version {focus.VERSION}: what each claim used of "
    "each meter in each charge period. Without --price its costs are 0. The same books give the same rows in the same "
    "order. docs/ledger.md says what the columns hold.",
    "Exit codes: 0 done, 1 the database does not answer, its books are damaged, or the reader of the output has gone, "
    "2 the ledger, a time or another option is wrong, the output cannot be written, or a Python package is missing.",
)

BATCH_ROWS = 2000
"""The rows written at a time."""

CURRENCY = "USD"
PROVIDER = "Muster"

_CODE = re.compile("[A-Z]{3}")


class Format(StrEnum):
    """The format of the output."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    FOCUS = "focus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """The columns to write, and the rows of a cluster's ledger in a period."""

    columns: Sequence[Column]
    rows: Callable[[AsyncConnection, str, Window, Progress], AsyncIterator[Row]]
    sink: Callable[[Sequence[Column], IO[bytes]], Sink]


def export(
    *,
    format_: Annotated[Format, typer.Option("--format", "-o", help="What to write.")] = Format.CSV,
    what: Annotated[
        What | None, typer.Option("--what", help="Which rows, by default entries; focus has its own.")
    ] = None,
    start: FromOption = None,
    end: ToOption = None,
    time_zone: ZoneOption = "UTC",
    output: Annotated[
        str,
        typer.Option("--output", help="A file, replaced when the export is complete; - is the standard output."),
    ] = "-",
    granularity: Annotated[
        Granularity | None, typer.Option("--granularity", help="The charge period of focus; by default a day.")
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option("--price", metavar="METER=PRICE", help="Of an hour of one base unit, for focus; repeatable."),
    ] = None,
    currency: Annotated[
        str | None, typer.Option("--currency", help="Of the prices, by ISO 4217; by default USD.")
    ] = None,
    provider: Annotated[
        str | None, typer.Option("--provider", help="Who provides and bills, for focus; by default Muster.")
    ] = None,
    database: DatabaseOption = None,
    cluster: ClustersOption = None,
    all_clusters: AllClustersOption = False,
    config: ConfigOption = None,
) -> None:
    """Write rows of the books of a time: entries, postings, use, or FOCUS's cost and usage."""
    zone = options.zone(time_zone)
    period = options.window(start, end, zone)
    if format_ is Format.FOCUS:
        export_ = _focus(_terms(granularity, zone, price or [], currency, provider), what)
    else:
        _refuse(
            format_, {"--granularity": granularity, "--price": price, "--currency": currency, "--provider": provider}
        )
        export_ = _table(what or What.ENTRIES, format_)
    if format_ is Format.FOCUS or what is What.USAGE:
        period = Window(*map(accruals.floor_to_second, options.past_part(period)))
    chosen = options.settings(config, database)
    try:
        with export_sinks.stream(output, binary_for=format_ if format_ is Format.PARQUET else "") as stream:
            sink = export_.sink(export_.columns, stream)

            async def write_all(ledger: SqlLedger) -> None:
                async with ledger.snapshot() as connection:
                    names = await options.clusters(connection, cluster or [chosen.cluster], all_of_them=all_clusters)
                    window = await options.clip_to_ledger(connection, names, period, start=start)
                    with terminal.progress("exporting") as progress:
                        for name in names:
                            await _write_rows(export_.rows(connection, name, window, progress), sink, output)

            options.query(chosen, write_all)
            sink.close()
    except export_sinks.ReaderGoneError:
        raise typer.Exit(1) from None


def _table(what: What, format_: Format) -> Export:
    return Export(
        columns=reports_export.COLUMNS[what],
        rows=lambda connection, cluster, window, progress: reports_export.rows(
            connection, cluster, what, window, progress
        ),
        sink=_SINKS[format_],
    )


_SINKS: Mapping[Format, Callable[[Sequence[Column], IO[bytes]], Sink]] = {
    Format.CSV: export_sinks.Csv,
    Format.JSONL: export_sinks.JsonLines,
    Format.PARQUET: export_sinks.Parquet,
}


def _focus(terms: Terms, what: What | None) -> Export:
    if what is not None:
        raise FixError(f"--what {what}: focus has rows of its own; leave it out")
    return Export(
        columns=[Column(name) for name in focus.columns(terms)],
        rows=lambda connection, cluster, window, progress: focus.rows(connection, cluster, window, terms, progress),
        sink=export_sinks.Csv,
    )


def _terms(
    granularity: Granularity | None, zone: tzinfo, prices: Sequence[str], currency: str | None, provider: str | None
) -> Terms:
    code = CURRENCY if currency is None else currency
    if not _CODE.fullmatch(code):
        raise FixError(f"--currency: {code!r} is no code of ISO 4217 such as USD or EUR")
    if provider is not None and not provider.strip():
        raise FixError("--provider: may not be empty; leave it out for Muster")
    return Terms(
        granularity=granularity or Granularity.DAY,
        zone=zone,
        currency=code,
        provider=provider or PROVIDER,
        prices=_prices(prices),
    )


def _prices(texts: Sequence[str]) -> dict[MeterName, Price]:
    found: dict[MeterName, Price] = {}
    for text in texts:
        meter, equals, value = text.rpartition("=")
        if not meter or not equals:
            raise FixError(f"--price: {text!r} is not METER=PRICE such as gpu=2.25")
        if meter in found:
            raise FixError(f"--price: names {meter} twice")
        try:
            found[MeterName(meter)] = focus.price(value)
        except AmountError as error:
            raise FixError(f"--price {meter}: {error}") from error
    return found


def _refuse(format_: Format, options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if value:
            raise FixError(f"{name}: belongs to --format focus, not to {format_}")


async def _write_rows(rows: AsyncIterator[Row], sink: Sink, output: str) -> None:
    """Write the rows slice by slice, in a thread."""

    def write(batch: Sequence[Row]) -> None:
        with export_sinks.output_errors(output):  # here, since an error of the output is not the database's
            sink.write(batch)

    pending: list[Row] = []
    async for row in rows:
        pending.append(row)
        if len(pending) == BATCH_ROWS:
            await asyncio.to_thread(write, pending)
            pending = []
    if pending:
        await asyncio.to_thread(write, pending)
