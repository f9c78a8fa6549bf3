"""The output formats of commands that list objects, as those of `kubectl get`."""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from admission.cli import terminal
from admission.cli.terminal import Overflow


class ListFormat(StrEnum):
    """The format of a list."""

    TEXT = "text"
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"


ListFormatOption = Annotated[
    ListFormat,
    typer.Option(
        "--format",
        "-o",
        help="A table as wide as the terminal (text is the same), one with every column and all text, one JSON or YAML "
        "document, names as kubectl writes them, or CSV with a heading.",
    ),
]

SelectorOption = Annotated[
    str, typer.Option("--selector", "-l", help="Only objects with these labels, as kubectl takes them: a=b,c!=d,e.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What each format takes of a list.

    show: prints the tables; their text is cut, or whole. names: `gang.muster.dev/train`. headings, rows: of the CSV.
    """

    show: Callable[[Overflow], None]
    document: Callable[[], Any]
    names: Iterable[str]
    headings: Sequence[str]
    rows: Iterable[Sequence[object]]


def write(listing: Listing, output: ListFormat) -> None:
    """Print a list."""
    match output:
        case ListFormat.TEXT | ListFormat.TABLE:
            listing.show(Overflow.CUT)
        case ListFormat.WIDE:
            listing.show(Overflow.WRAP)
        case ListFormat.JSON:
            terminal.as_json(listing.document())
        case ListFormat.YAML:
            _write_yaml(listing.document())
        case ListFormat.NAME:
            sys.stdout.writelines(f"{name}\n" for name in listing.names)
        case ListFormat.CSV:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(listing.headings)
            writer.writerows(listing.rows)


def _write_yaml(document: Any) -> None:
    import yaml  # noqa: PLC0415 - only this format needs it

    # Enumerations and integers of ours are plain values in JSON, and unknown to YAML.
    yaml.safe_dump(json.loads(json.dumps(document)), sys.stdout, sort_keys=False, allow_unicode=True)
