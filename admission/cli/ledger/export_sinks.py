"""Sinks of exported rows: CSV, JSON Lines or Parquet, to the standard output or an atomically created file.

A thread writes the rows in slices, so that the event loop, which reads the ledger, is never blocked.
"""

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Protocol

from admission.errors import FixError
from admission.ledger.reports.export import Column, Row, Type


class Sink(Protocol):
    """Receives the rows of one export."""

    def write(self, rows: Sequence[Row]) -> None:
        """Write some rows."""

    def close(self) -> None:
        """Write the remaining rows; the stream is left open."""


class ReaderGoneError(Exception):
    """The reader of the standard output has closed it, as `head` does."""


@contextmanager
def stream(output: str, *, binary_for: str = "") -> Iterator[IO[bytes]]:
    """Yield the stream to write to: the standard output for `-`, or a file that is moved into place on success.

    binary_for: the format, if it must not go to a terminal. Raises FixError if the file cannot be created.
    """
    if output == "-":
        if binary_for and sys.stdout.isatty():
            raise FixError(f"--output: {binary_for} is not for a terminal; name a file")
        with output_errors(output):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        return
    target = Path(output)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with output_errors(output):
            with partial.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
    finally:
        with suppress(OSError):
            partial.unlink()


@contextmanager
def output_errors(output: str) -> Iterator[None]:
    """Turn an error of the output into a sentence. Raises FixError or ReaderGoneError."""
    try:
        yield
    except BrokenPipeError as error:
        # Otherwise Python would write the buffered rest at exit, and fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise ReaderGoneError from error
    except OSError as error:
        name = "the standard output" if output == "-" else output
        raise FixError(f"--output: {name} cannot be written: {error.strerror or error}") from error


class Csv:
    """Comma-separated values in UTF-8 with a heading (RFC 4180, but with line feeds); None is empty."""

    def __init__(self, columns: Sequence[Column], stream_: IO[bytes]) -> None:
        self._stream = stream_
        self._text = io.StringIO(newline="")
        self._writer = csv.writer(self._text, lineterminator="\n")
        self._quoting = csv.writer(self._text, lineterminator="\n", quoting=csv.QUOTE_ALL)
        self._writer.writerow([column.name for column in columns])

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            values = [_text(value) for value in row]
            # Python does not quote a lone carriage return, at which readers end a row.
            writer = self._quoting if "\r" in "".join(values) else self._writer
            writer.writerow(values)
        self._flush()

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        self._stream.write(self._text.getvalue().encode())
        self._text.seek(0)
        self._text.truncate()


class JsonLines:
    """One JSON object per line. Amounts are strings, since many JSON readers round numbers beyond 2^53."""

    def __init__(self, columns: Sequence[Column], stream_: IO[bytes]) -> None:
        self._columns = columns
        self._stream = stream_

    def write(self, rows: Sequence[Row]) -> None:
        lines = (
            {name: _json(value, type_) for (name, type_), value in zip(self._columns, row, strict=True)} for row in rows
        )
        self._stream.write("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode())

    def close(self) -> None:
        pass


class Parquet:
    """An Apache Parquet file: amounts as decimal128(38, 0), moments as timestamps in UTC, JSON as text."""

    def __init__(self, columns: Sequence[Column], stream_: IO[bytes]) -> None:
        self._arrow, parquet = _arrow()
        types: Mapping[Type, Any] = {
            Type.TEXT: self._arrow.string(),
            Type.JSON: self._arrow.string(),
            Type.INTEGER: self._arrow.int64(),
            Type.AMOUNT: self._arrow.decimal128(38, 0),
            Type.MOMENT: self._arrow.timestamp("us", tz="UTC"),
        }
        self._columns = columns
        self._schema = self._arrow.schema([(name, types[type_]) for name, type_ in columns])
        self._writer = parquet.ParquetWriter(stream_, self._schema)

    def write(self, rows: Sequence[Row]) -> None:
        columns = zip(*rows, strict=True) if rows else ((),) * len(self._columns)
        arrays = [
            self._arrow.array([_exact(value) for value in values] if type_ is Type.AMOUNT else values, field.type)
            for (_, type_), values, field in zip(self._columns, columns, self._schema, strict=True)
        ]
        self._writer.write_batch(self._arrow.record_batch(arrays, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def _arrow() -> tuple[Any, Any]:
    # Imported here since it is large and optional.
    try:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise FixError(
            "--format parquet needs the Python package pyarrow: in a checkout of Muster, `uv tool install '.[parquet]'`"
        ) from error
    return pa, parquet


def _exact(value: int | None) -> Decimal | None:
    return None if value is None else Decimal(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return _instant(value) if isinstance(value, datetime) else str(value)


def _json(value: Any, type_: Type) -> Any:
    if value is None:
        return None
    convert = _JSON_CONVERTERS.get(type_)
    return convert(value) if convert else value


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


_JSON_CONVERTERS: Mapping[Type, Callable[[Any], Any]] = {
    Type.AMOUNT: str,
    Type.MOMENT: _instant,
    Type.JSON: json.loads,
}
