"""Column types that store amounts and times exactly on SQLite and PostgreSQL, with check constraints."""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import TIMESTAMP, CheckConstraint, Dialect, Numeric, String
from sqlalchemy.types import TypeDecorator, TypeEngine


class ExactInteger(TypeDecorator[int]):
    """An integer of up to 38 digits: NUMERIC(38, 0) on PostgreSQL, decimal text on SQLite.

    SQLite's INTEGER ends at 2^63 and its NUMERIC turns larger numbers into floating point. Only Python does arithmetic
    on these columns, so text is enough; `whole` constrains its form.
    """

    impl = String(39)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Numeric(38, 0) if dialect.name == "postgresql" else String(39))

    def process_bind_param(self, value: int | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        return Decimal(value) if dialect.name == "postgresql" else str(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> int | None:  # noqa: ARG002 - the signature is given
        return None if value is None else exact(value)


class Instant(TypeDecorator[datetime]):
    """A moment to the microsecond, in UTC: TIMESTAMP WITH TIME ZONE on PostgreSQL, ISO text that sorts on SQLite."""

    impl = String(32)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(TIMESTAMP(timezone=True) if dialect.name == "postgresql" else String(32))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        utc = value.astimezone(UTC)
        return utc if dialect.name == "postgresql" else utc.isoformat(timespec="microseconds")

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - the same
        return None if value is None else moment(value)


def moment(value: datetime | str) -> datetime:
    """Return a moment as a driver gives it, in UTC. Raises ValueError for text in another form than Muster's.

    Another form is refused even if it means the same moment, since it would sort differently.
    """
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    found = datetime.fromisoformat(value)
    if found.tzinfo is not UTC or found.isoformat(timespec="microseconds") != value:
        raise ValueError(f"{value!r} is not the form of a moment in the ledger")
    return found


def exact(value: Decimal | str) -> int:
    """Return an amount as a driver gives it. Raises ValueError for text that is not in canonical form."""
    number = int(value)
    if isinstance(value, str) and str(number) != value:
        raise ValueError(f"{value!r} is not the form of an amount in the ledger")
    return number


def whole(column: str, *, name: str | None = None) -> CheckConstraint:
    """Refuse, on SQLite, text that is not the canonical form of an integer of up to 38 digits.

    name: the column's, where `column` quotes it.
    """
    return CheckConstraint(_canonical(column), name=f"{name or column}_is_whole").ddl_if(dialect="sqlite")


def whole_or_missing(column: str) -> CheckConstraint:
    """Do the same for a column that may be NULL."""
    check = f"{column} IS NULL OR ({_canonical(column)})"
    return CheckConstraint(check, name=f"{column}_is_whole").ddl_if(dialect="sqlite")


def _canonical(column: str) -> str:
    digits = f"ltrim({column}, '-')"
    return (
        f"typeof({column}) = 'text' AND length({digits}) BETWEEN 1 AND 38 AND {digits} NOT GLOB '*[^0-9]*'"
        f" AND ({column} = '0' OR {column} GLOB '[1-9]*' OR {column} GLOB '-[1-9]*')"
    )


def natural(column: str) -> tuple[CheckConstraint, CheckConstraint]:
    """Refuse a negative amount."""
    name = f"{column}_is_not_negative"
    return (
        CheckConstraint(f"{column} NOT GLOB '-*'", name=name).ddl_if(dialect="sqlite"),
        CheckConstraint(f"{column} >= 0", name=name).ddl_if(dialect="postgresql"),
    )


def nonzero(column: str) -> CheckConstraint:
    """Refuse an amount of zero, which changes nothing."""
    return CheckConstraint(f"{column} <> '0'", name=f"{column}_is_not_zero")


def counted(column: str) -> CheckConstraint:
    """Refuse a number less than 1."""
    return CheckConstraint(f"{column} >= 1", name=f"{column}_is_counted")


def known(column: str, values: Iterable[str | int]) -> CheckConstraint:
    """Refuse values that are not among the given ones."""
    return CheckConstraint(f"{column} IN ({', '.join(map(repr, values))})", name=f"{column}_is_known")
