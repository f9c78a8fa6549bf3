"""`muster ledger report`: device-hours and meter-hours of a period, grouped by users, queues and so on."""

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from enum import StrEnum
from typing import Annotated, Any

import typer
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api.values import quantities
from admission.api.values.names import MeterName
from admission.cli import apps, terminal
from admission.cli.config_command import ConfigOption
from admission.cli.ledger import options, used_columns
from admission.cli.ledger.options import (
    AllClustersOption,
    ClustersOption,
    DatabaseOption,
    FromOption,
    ToOption,
    ZoneOption,
)
from admission.cli.terminal import Number
from admission.errors import FixError
from admission.ledger.journal import base
from admission.ledger.journal.base import Window
from admission.ledger.reports import memory_asked, time_series, usage_report, utilization
from admission.ledger.reports.allocation_intervals import Progress
from admission.ledger.reports.memory_asked import MemoryAsked
from admission.ledger.reports.usage_report import Key, Report, Use
from admission.ledger.reports.utilization import Measured, Utilization
from admission.ledger.sql_ledger import SqlLedger

EPILOG = apps.epilog(
    (
        "muster ledger report --from 2026-09-01 --to 2026-10-01",
        "muster ledger report --by queue,user --from 2026-09-01 --to 2026-10-01 --time-zone Europe/Berlin",
        "muster ledger report --by class --all-clusters --format csv > classes.csv",
        "muster ledger report --by gang --format json | jq -r '.rows[] | [.gang, .deviceHours] | @tsv'",
        "muster ledger report --by gang --used --from 2026-09-01",
        "muster ledger report --by gang --most-idle 10",
    ),
    "A claim counts from the entry that settled it to the one that closed it, in whole seconds; one that is still "
    "allocated counts up to --to, or now. Hours have four decimals, which tell every second from the next; JSON and "
    "CSV have the exact seconds too. A charge is one for the whole claim, so by class there are device-hours and no "
    "meter-hours. 'unknown' is the user or class of entries that do not say it.",
    "--used adds what was recorded from Prometheus (docs/tasks/used.md): the device-hours of which the use is known, "
    "those in use and idle among them, the share in use, the most memory on one device, and the energy. What was not "
    "measured is '-', and never 0. A recorded time counts if it lies within --from and --to as a whole.",
    "Exit codes: 0 done, 1 the database does not answer or its books are damaged, 2 the ledger, a time or another "
    "option is wrong.",
)

BY = tuple(key for key in Key if key is not Key.CLUSTER)


class Format(StrEnum):
    """The format of the output."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


OUTSIDE = (
    "the books do not have claims outside queues: where one had a device as well, the memory that it used is part of"
    " what exceeds; the condition MemoryExceeded of Gangs counts what it asked for"
)

MemoryMeterOption = Annotated[
    str | None,
    typer.Option(
        "--memory-meter",
        metavar="METER",
        help="Show by how much memory in use exceeds what claims in queues asked for by this meter; implies --used.",
    ),
]


def report(
    *,
    by: Annotated[
        str, typer.Option("--by", help=f"What to group by, of {','.join(BY)}; several with commas.")
    ] = Key.QUEUE.value,
    start: FromOption = None,
    end: ToOption = None,
    time_zone: ZoneOption = "UTC",
    meter: Annotated[
        list[str] | None,
        typer.Option("--meter", metavar="METER", help="Show the hours of this meter, repeatable; by default of all."),
    ] = None,
    used: Annotated[
        bool,
        typer.Option("--used", help="Show what the devices did, as far as it was recorded, beside what was allocated."),
    ] = False,
    most_idle: Annotated[
        int | None,
        typer.Option("--most-idle", min=1, help="Only so many groups, those with the most idle hours; implies --used."),
    ] = None,
    memory_meter: MemoryMeterOption = None,
    output: Annotated[
        Format, typer.Option("--format", "-o", help="A table, one JSON object, or CSV with a heading.")
    ] = Format.TEXT,
    database: DatabaseOption = None,
    cluster: ClustersOption = None,
    all_clusters: AllClustersOption = False,
    config: ConfigOption = None,
) -> None:
    """Show device-hours and meter-hours between two times, from settled allocations."""
    keys = _keys(by)
    used = used or most_idle is not None or memory_meter is not None
    if used and Key.CLASS in keys:
        raise FixError(
            "--used: what devices did is recorded of claims, which may have several classes; leave class out"
        )
    zone = options.zone(time_zone)
    period = options.past_part(options.window(start, end, zone))
    chosen = options.settings(config, database)

    async def fetch(ledger: SqlLedger) -> tuple[Report, Measured | None]:
        async with ledger.snapshot() as connection:
            names = await options.clusters(connection, cluster or [chosen.cluster], all_of_them=all_clusters)
            await _check_meters(connection, names, meter or [], "--meter")
            await _check_meters(connection, names, [memory_meter] if memory_meter else [], "--memory-meter")
            window = await options.clip_to_ledger(connection, names, period, start=start)
            grouped = (Key.CLUSTER, *keys) if all_clusters or len(names) > 1 else keys
            with terminal.progress("reading the books") as watch:
                found = await usage_report.report(connection, names, grouped, window, watch)
                asked = await _asked(connection, names, memory_meter, found.window, watch)
            measured = await utilization.measured(connection, names, grouped, found.window, asked) if used else None
            return found, measured

    found, measured = options.query(chosen, fetch)
    if measured is not None and most_idle is not None:
        found = replace(found, rows=_most_idle(found.rows, measured, most_idle))
    _WRITERS[output](found, measured, _meters(found, meter or []), zone)
    if measured is not None and measured.total.memory_over:
        terminal.note(OUTSIDE)


async def _asked(
    connection: AsyncConnection, clusters: Sequence[str], meter: str | None, window: Window, watch: Progress
) -> Mapping[str, MemoryAsked]:
    """Return what was asked for of the memory of devices, by cluster; nothing without a meter of it."""
    if meter is None:
        return {}
    return {name: await memory_asked.read(connection, name, MeterName(meter), window, watch) for name in clusters}


def _keys(by: str) -> tuple[Key, ...]:
    names = [name.strip() for name in by.split(",")]
    for name in names:
        if name not in BY:
            raise FixError(f"--by: there is no {name!r} to group by; use one or more of {','.join(BY)}")
        if names.count(name) > 1:
            raise FixError(f"--by: names {name} twice")
    return tuple(map(Key, names))


async def _check_meters(
    connection: AsyncConnection, clusters: Sequence[str], names: Sequence[str], option: str
) -> None:
    known = {meter for _, meter in await base.accounts(connection, clusters)}
    for name in names:
        if name not in known:
            hint = f"there are {options.listed(known)}" if known else "there are none yet"
            raise FixError(f"{option}: the books know no meter {name!r}; {hint}")


def _meters(found: Report, names: Sequence[str]) -> list[MeterName]:
    return [MeterName(name) for name in dict.fromkeys(names)] or sorted(found.total.meters)


def _most_idle(rows: Mapping[tuple[str, ...], Use], measured: Measured, most: int) -> dict[tuple[str, ...], Use]:
    """Return the groups with the most idle hours, the most first; of groups without measured use nothing is known."""
    idle = {group: hours for group in rows if (hours := measured.of(group).idle) is not None}
    chosen = sorted(idle, key=lambda group: (-idle[group], group))[:most]
    return {group: rows[group] for group in chosen}


def _as_text(found: Report, measured: Measured | None, meters: Sequence[MeterName], zone: tzinfo) -> None:
    meters_shown = [] if Key.CLASS in found.keys else list(meters)
    headings = (
        *found.keys,
        Number("device-hours"),
        *used_columns.headings(measured),
        *(Number(f"{meter}-hours") for meter in meters_shown),
    )
    rows = [(*group, *_amounts(use, measured, group, meters_shown)) for group, use in found.rows.items()]
    if rows:
        total = _amounts(found.total, measured, None, meters_shown)
        rows.append(("total", *[""] * (len(found.keys) - 1), *total))
    times = (f"{at.astimezone(zone):%Y-%m-%d %H:%M:%S}" for at in found.window)
    terminal.table(f"Use from {' to '.join(times)} {zone}", headings, rows, empty="nothing was used in this time")


def _did(measured: Measured | None, group: tuple[str, ...] | None = None) -> Utilization | None:
    """Return what the devices of a group did, or all of them; None if that is not asked for."""
    if measured is None:
        return None
    return measured.total if group is None else measured.of(group)


def _amounts(
    use: Use, measured: Measured | None, group: tuple[str, ...] | None, meters: Sequence[MeterName]
) -> list[str]:
    did = _did(measured, group)
    hours = [_hour(use.meters.get(meter, 0)) for meter in meters]
    return [_hour(use.devices), *(used_columns.cells(did, measured) if did and measured else []), *hours]


def _hour(seconds: int) -> str:
    """Return hours as text, whole ones as a quantity, so that large meters such as memory are readable."""
    return time_series.decimal(seconds) if seconds % 3600 else quantities.render(seconds // 3600)


def _as_json(
    found: Report,
    measured: Measured | None,
    meters: Sequence[MeterName],
    zone: tzinfo,  # noqa: ARG001 - times are in UTC
) -> None:
    start, end = map(options.instant, found.window)
    terminal.as_json(
        {
            "start": start,
            "end": end,
            "by": list(found.keys),
            "rows": [
                {
                    **dict(zip(found.keys, group, strict=True)),
                    **_use(
                        use,
                        measured,
                        _did(measured, group),
                        [] if Key.CLASS in found.keys else meters,
                    ),
                }
                for group, use in found.rows.items()
            ],
            "total": _use(found.total, measured, _did(measured), meters),
        }
    )


def _use(use: Use, measured: Measured | None, did: Utilization | None, meters: Sequence[MeterName]) -> dict[str, Any]:
    seconds = {meter: use.meters.get(meter, 0) for meter in meters}
    return {
        "deviceSeconds": str(use.devices),
        "deviceHours": time_series.decimal(use.devices),
        **({"measured": used_columns.as_json(did, measured)} if did and measured else {}),
        "meters": {
            meter: {"seconds": str(amount), "hours": time_series.decimal(amount)} for meter, amount in seconds.items()
        },
    }


def _as_csv(
    found: Report,
    measured: Measured | None,
    meters: Sequence[MeterName],
    zone: tzinfo,  # noqa: ARG001 - it has no times
) -> None:
    meters_shown = [] if Key.CLASS in found.keys else list(meters)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    columns = [f"{meter}_{unit}" for meter in ("device", *meters_shown) for unit in ("seconds", "hours")]
    writer.writerow([*found.keys, *columns, *used_columns.csv_headings(measured)])
    for group, use in found.rows.items():
        amounts = [use.devices, *(use.meters.get(meter, 0) for meter in meters_shown)]
        texts = (text for amount in amounts for text in (str(amount), time_series.decimal(amount)))
        did = used_columns.amounts(measured.of(group), measured) if measured else ()
        writer.writerow([*group, *texts, *did])


_WRITERS = {Format.TEXT: _as_text, Format.JSON: _as_json, Format.CSV: _as_csv}
