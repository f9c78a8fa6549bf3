"""What all documents are: JSON objects with a version and a kind, whose tables can also be written as CSV.

Names are in camel case. Amounts of meters are exact: decimal strings in the meter's base unit. Times are RFC 3339 in
UTC. Fields may be added within a version; none is taken away, and none changes its meaning.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec

from admission.api.muster.gangs import Charge

Time = Annotated[datetime, msgspec.Meta(tz=True)]

API_VERSION: Final = "dashboard.muster.dev/v1"


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a document."""


class Document(Record, frozen=True, kw_only=True, tag_field="kind", tag=True):
    """What a page says. cluster: its name in the books; at: as of when."""

    api_version: Literal["dashboard.muster.dev/v1"] = API_VERSION
    cluster: str
    at: Time


class Listing(Document, frozen=True, kw_only=True):
    """One page of a list. total: of the whole list; page: from 1, of `pages`."""

    total: int
    page: int = 1
    pages: int = 1


class Error(Document, frozen=True, kw_only=True):
    """Why there is no such document. right: the one that is missing, in the words of RBAC."""

    status: int
    title: str
    message: str
    right: str = ""


def amounts(charge: Charge | Mapping[str, int]) -> dict[str, str]:
    """Return a charge as decimal strings, by meter."""
    return {meter: str(amount) for meter, amount in sorted(charge.items())}


def as_json(document: Document) -> bytes:
    """Return a document as JSON."""
    return msgspec.json.encode(document)


def tables(document: Document) -> Sequence[str]:
    """Return the names of a document's tables: its fields that are lists of records, in order."""
    names = zip(document.__struct_fields__, document.__struct_encode_fields__, strict=True)
    return [
        encoded
        for name, encoded in names
        if isinstance(value := getattr(document, name), Sequence)
        and not isinstance(value, str)
        and all(isinstance(one, Record) for one in value)
    ]


def as_csv(document: Document, table: str) -> bytes:
    """Return a table of a document as CSV (RFC 4180) with a heading: nested fields as `meters.gpus.used`.

    The columns are those of all rows, in the order in which they come.
    """
    rows = [_flat(row) for row in msgspec.to_builtins(document)[table]]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
    return text.getvalue().encode()


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{below}": one for below, one in _flat(value).items()}
        else:
            found[name] = value
    return found


FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def _cell(value: object) -> object:
    """Return a value as a cell, which no spreadsheet takes for a formula."""
    if isinstance(value, list):
        value = "; ".join(one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in value)
    if isinstance(value, str) and value.startswith(FORMULAS) and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(text: str) -> bool:
    return text.removeprefix("-").replace(".", "", 1).isdecimal()
