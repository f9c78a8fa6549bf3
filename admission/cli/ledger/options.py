"""The common options of the commands on the ledger: database, clusters and period."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api.values import time_zones
from admission.cli import config_command
from admission.errors import FixError
from admission.ledger.journal import base
from admission.ledger.journal.base import Window
from admission.ledger.sql_ledger import SqlLedger
from admission.settings import Ledger

T = TypeVar("T")

DatabaseOption = Annotated[
    str | None,
    typer.Option("--database", "-d", help="SQLAlchemy URL; by default that of the settings."),
]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", help="The cluster's name in the ledger; by default that of the settings.")
]
ClustersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster", metavar="NAME", help="A cluster's name in the ledger, repeatable; by default that of the settings."
    ),
]
AllClustersOption = Annotated[bool, typer.Option("--all-clusters", help="All clusters that share the ledger.")]
FromOption = Annotated[str | None, typer.Option("--from", help="Date or time; by default 30 days before --to.")]
ToOption = Annotated[str | None, typer.Option("--to", help="Date or time, not included; by default now.")]
ZoneOption = Annotated[
    str, typer.Option("--time-zone", help="IANA name of the zone of dates and times that say none: Europe/Berlin.")
]

_DEFAULT_LENGTH = timedelta(days=30)
_MOST_LISTED = 20


def settings(config: Path | None, database: str | None, cluster: str | None = None) -> Ledger:
    """Return the ledger in the options and the settings."""
    return config_command.chosen(config, {"--database": database, "--cluster": cluster}).settings.ledger


def query(chosen: Ledger, fetch: Callable[[SqlLedger], Awaitable[T]]) -> T:
    """Open the ledger and return the result of the question."""

    async def fetched() -> T:
        async with SqlLedger.open(chosen.url, chosen.cluster) as ledger:
            return await fetch(ledger)

    return asyncio.run(fetched())


def zone(name: str) -> tzinfo:
    """Return the zone of --time-zone. Raises FixError if it is unknown."""
    found = time_zones.find(name)
    if found is None:
        nearest = " or ".join(time_zones.near(name))
        raise FixError(
            f"--time-zone: there is no time zone {name[: time_zones.LONGEST]!r};"
            f" {f'did you mean {nearest}?' if nearest else 'use an IANA name such as Europe/Berlin'}"
        )
    return found


def window(start: str | None, end: str | None, in_zone: tzinfo) -> Window:
    """Return the period of --from and --to. Raises FixError if a time is invalid, or the period is empty."""
    until = time("--to", end, in_zone) if end else datetime.now(UTC)
    try:
        since = time("--from", start, in_zone) if start else until - _DEFAULT_LENGTH
    except OverflowError as error:
        raise FixError(f"--to: {end!r} has no 30 days before it; say --from too") from error
    if since >= until:
        stated = f"--to {end}" if end else "now"
        raise FixError(f"--from {start or _format(since)} is not before {stated}: a period ends after it starts")
    return Window(since, until)


def past_part(period: Window) -> Window:
    """Return a period without its future part. Raises FixError if all of it is in the future."""
    found = Window(period.start, min(period.end, datetime.now(UTC)))
    if found.start >= found.end:
        raise FixError(f"--from {_format(found.start)} has not come yet: nothing can have been used")
    return found


def time(option: str, text: str, in_zone: tzinfo) -> datetime:
    """Return an option's time, in UTC. Raises FixError if it is invalid."""
    try:
        parsed = datetime.fromisoformat(text)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=in_zone)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise FixError(f"{option}: {text!r} is no date or time such as 2026-01-31 or 2026-01-31T12:00Z") from error


async def clip_to_ledger(
    connection: AsyncConnection, names: Sequence[str], period: Window, *, start: str | None
) -> Window:
    """Return the period; if no start was given, it begins no earlier than the ledger of every cluster."""
    starts = [at for name in names if (at := (await base.base(connection, name)).at) is not None]
    if start is not None or not starts:
        return period
    return Window(min(max(period.start, *starts), period.end), period.end)


async def clusters(connection: AsyncConnection, names: Sequence[str], *, all_of_them: bool = False) -> list[str]:
    """Return the clusters to read. Raises FixError if one is not in the ledger while others are."""
    known_clusters = await base.known_clusters(connection)
    if all_of_them:
        return known_clusters
    for name in names:
        if known_clusters and name not in known_clusters:
            raise FixError(
                f"--cluster: the ledger has no books of cluster {name!r}; it has those of {listed(known_clusters)}"
            )
    return list(dict.fromkeys(names))


def listed(names: Iterable[str]) -> str:
    """Return the first few names, and the number of the others."""
    found = sorted(names)
    more = f" and {len(found) - _MOST_LISTED} more" if len(found) > _MOST_LISTED else ""
    return f"{', '.join(found[:_MOST_LISTED])}{more}"


def instant(at: datetime) -> str:
    """Return a time for programs: in UTC, to the microsecond if it has any."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _format(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
