"""Archives: the rows of a closed period, in one file of gzipped JSON lines.

The first line is the header, and each of the others is one transaction with its postings, in the order of the chain; a
measure entry has its rows of measured use, too.
Values are those of the columns, with times and amounts as text, so that a reader in any language can recompute the
digests (see `hash_chain`). A file with its final name is complete: it is written under another name, synchronised, and
renamed. The closing's carried state, which the chain proves, contains its SHA-256.
"""

import gzip
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from admission.errors import FixError, LedgerCorruptError
from admission.ledger.journal import encoding, read
from admission.ledger.journal.documents import Document
from admission.ledger.journal.hash_chain import HashedFields
from admission.ledger.journal.read import Record

FORM = 1
"""The version of the file's form."""

SUFFIX = ".jsonl.gz"

_LEVEL = 6
_BLOCK = 1 << 20
_MALFORMED = (AttributeError, EOFError, KeyError, OSError, TypeError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The contents of an archive. previous: the digest before its first transaction; digest: that of its last."""

    cluster: str
    first: int
    last: int
    previous: str
    digest: str
    ends: str
    """The time up to which the books were closed."""

    @property
    def name(self) -> str:
        """Return the file's name: the cluster, the period's end, the transactions, and the beginning of the digest."""
        cluster = re.sub(r"[^A-Za-z0-9.-]", "_", self.cluster)[:100]
        end = re.sub(r"[^0-9TZ]", "", self.ends.partition(".")[0]) + "Z"
        return f"{cluster}-{end}-{self.first}-{self.last}-{self.digest[:12]}{SUFFIX}"


class Writer:
    """A new archive. `finish` gives it its name; `close` without `finish` removes it."""

    def __init__(self, folder: Path) -> None:
        """Begin a file. Raises FixError when the folder cannot be written."""
        self._folder = folder
        self._path = folder / f".closing-{os.getpid()}-{secrets.token_hex(4)}.part"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._raw = self._path.open("w+b")
        except OSError as error:
            raise FixError(f"--archive: {folder}: {error.strerror or error}") from error
        # Neither name nor time: the same rows give the same file, so that a repeated closing makes the same archive.
        self._file = gzip.GzipFile(filename="", mode="wb", fileobj=self._raw, compresslevel=_LEVEL, mtime=0)

    def close(self) -> None:
        self._file.close()
        self._raw.close()
        self._path.unlink(missing_ok=True)

    def begin(self, header: Header) -> None:
        """Write the first line."""
        self._line({"form": FORM, **{name: getattr(header, name) for name in _HEADER}})

    def add(
        self, form: int, digest: str, document: Document, measured: Sequence[Sequence[str | None]] | None = None
    ) -> None:
        """Write a transaction. measured: the rows for which a measure entry vouches, as they are hashed."""
        fields = _encode(form, digest, document)
        self._line(fields if measured is None else {**fields, "measured": measured})

    def finish(self, header: Header) -> str:
        """Complete the file under its name; return its SHA-256."""
        self._file.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        self._raw.seek(0)
        digest = _digest(iter(lambda: self._raw.read(_BLOCK), b""))
        self._path.replace(self._folder / header.name)
        _synchronise(self._folder)
        return digest

    def _line(self, value: Any) -> None:
        self._file.write(encoding.compact(value).encode() + b"\n")


_HEADER = ("cluster", "first", "last", "previous", "digest", "ends")


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file. Raises OSError."""
    with path.open("rb") as file:
        return _digest(iter(lambda: file.read(_BLOCK), b""))


def header(path: Path) -> Header:
    """Return the header of an archive. Raises LedgerCorruptError when the file is no archive."""
    with _open(path) as lines:
        return lines.header


def records(path: Path) -> Iterator[Record]:
    """Yield the transactions of an archive, in order. Raises LedgerCorruptError where it cannot be read."""
    with _open(path) as lines:
        yield from lines.records()


class _open:  # noqa: N801 - used as a function
    """A context: an archive being read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        try:
            self._file = gzip.open(self._path, "rt", encoding="utf-8", newline="\n")
            fields = json.loads(self._file.readline())
            if fields.pop("form") != FORM:
                raise ValueError("its form is not known")
            self.header = Header(**fields)
        except _MALFORMED as error:
            raise LedgerCorruptError(f"archive {self._path} cannot be read: {error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def records(self) -> Iterator[Record]:
        number = 1
        try:
            for line in self._file:
                number += 1
                yield _record(json.loads(line))
        except _MALFORMED as error:
            raise LedgerCorruptError(f"archive {self._path}, line {number}, cannot be read: {error}") from error


def _encode(form: int, digest: str, document: Document) -> dict[str, Any]:
    return {
        "sequence": document.sequence,
        "format": form,
        "epoch": document.epoch,
        "previous": document.previous,
        "digest": digest,
        **{name: getattr(document, name) for name in HashedFields._fields},
        "postings": document.lines,
    }


def _record(fields: dict[str, Any]) -> Record:
    row = {**fields, "at": datetime.fromisoformat(fields["at"])}
    lines = [dict(zip(_LINE, line, strict=True)) for line in fields["postings"]]
    return read.record(row, [{**line, "amount": int(line["amount"])} for line in lines])


_LINE = ("queue", "meter", "bucket", "amount", "claim")


def _digest(blocks: Iterator[bytes]) -> str:
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()


def _synchronise(folder: Path) -> None:
    """Make a rename durable: it is an entry of the folder, which syncing the file does not cover."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
