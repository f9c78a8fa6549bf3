"""What devices did while they were allocated, beside the books; entries of the kind `measure` vouch for it."""

import sqlalchemy as sa
from alembic import context, op

from admission.errors import LedgerVersionError
from admission.ledger.db.column_types import (
    ExactInteger,
    Instant,
    counted,
    known,
    natural,
    nonzero,
    whole,
    whole_or_missing,
)

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

KINDS_BEFORE = ("grant", "reserve", "settle", "release", "evict", "adjust", "usage", "close")
KINDS = (*KINDS_BEFORE, "measure")
BUCKETS = ("entitlement", "free", "reserved", "used", "supply", "spent")

INDEXES = {
    "transactions": (("at",), ("kind", "sequence"), ("gang_uid", "sequence")),
    "postings": (("queue", "sequence"),),
}
KEYS = {
    "transactions": (("cluster", "sequence"), ("cluster", "key")),
    "postings": (("cluster", "sequence", "line"),),
    "measured_usage": (("cluster", "sequence", "line"), ("cluster", "claim_uid", "start")),
}
"""What no two rows share. SQLite's INSERT OR REPLACE removes the row that is there, and tells no trigger on DELETE."""


def upgrade() -> None:
    _allow(KINDS)
    _make_measured_usage()
    if _in_postgresql():
        _guard_postgresql("measured_usage")
    else:
        _guard_sqlite("measured_usage")


def downgrade() -> None:
    _refuse_to_forget()
    op.drop_table("measured_usage")  # with its triggers
    if context.get_revision_argument():  # else all the way, to `base`: the transactions go, too
        _allow(KINDS_BEFORE)


def _in_postgresql() -> bool:
    return op.get_context().dialect.name == "postgresql"


def _refuse_to_forget() -> None:
    """Go back only where the books can be read afterwards, or are removed altogether."""
    if not context.get_revision_argument():
        return
    later = op.get_bind().execute(sa.text("SELECT count(*) FROM transactions WHERE kind = 'measure'")).scalar_one()
    if later:
        raise LedgerVersionError(
            f"revision 0003 could not read the {later} transactions of measured use: restore the backup from before the"
            " upgrade"
        )


def _make_measured_usage() -> None:
    op.create_table(
        "measured_usage",
        _text("cluster"),
        _number("sequence"),
        sa.Column("line", sa.Integer, nullable=False),
        *(_text(name) for name in ("queue", "gang_uid")),
        *(_text(name, None) for name in ("gang", "user")),
        _text("claim_uid"),
        _text("claim", None),
        *(sa.Column(name, Instant, nullable=False) for name in ("start", "until")),
        sa.Column("devices", sa.Integer, nullable=False),
        _amount("measured_seconds"),
        *(_amount(name, nullable=True) for name in ("used_microseconds", "memory_peak")),
        _amount("powered_seconds"),
        _amount("energy", nullable=True),
        sa.PrimaryKeyConstraint("cluster", "sequence", "line", name="pk_measured_usage"),
        sa.UniqueConstraint("cluster", "claim_uid", "start", name="uq_measured_usage_cluster_claim_uid_start"),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.cluster"], name="fk_measured_usage_clusters"),
        *(_named("measured_usage", counted(name)) for name in ("sequence", "line")),
        *(_named("measured_usage", whole(name)) for name in ("measured_seconds", "powered_seconds")),
        *(_named("measured_usage", whole_or_missing(name)) for name in ("used_microseconds", "memory_peak", "energy")),
        *(
            _named("measured_usage", check)
            for name in ("measured_seconds", "used_microseconds", "memory_peak", "powered_seconds", "energy")
            for check in natural(name)
        ),
    )
    op.create_index("ix_measured_usage_cluster_start", "measured_usage", ["cluster", "start"])


# The kinds of transactions.


def _allow(kinds: tuple[str, ...]) -> None:
    if _in_postgresql():
        name = op.f("ck_transactions_kind_is_known")
        op.drop_constraint(name, "transactions", type_="check")
        op.create_check_constraint(name, "transactions", known("kind", kinds).sqltext)
    else:
        _rebuild(kinds)


def _rebuild(kinds: tuple[str, ...]) -> None:
    """Make the tables of SQLite anew, which changes no constraint of a table that is there."""
    for table in ("transactions", "postings"):
        op.rename_table(table, f"old_{table}")  # references follow the name
        for columns in INDEXES[table]:
            op.drop_index(_name(table, columns))
    _make_transactions(kinds)
    _make_postings()
    for table in ("transactions", "postings"):
        op.execute(f"INSERT INTO {table} SELECT * FROM old_{table}")  # noqa: S608 - our own names
    for table in ("postings", "transactions"):
        op.drop_table(f"old_{table}")  # with its triggers
    for table, indexed in INDEXES.items():
        for columns in indexed:
            op.create_index(_name(table, columns), table, ["cluster", *columns])
        _guard_sqlite(table)


def _make_transactions(kinds: tuple[str, ...]) -> None:
    op.create_table(
        "transactions",
        _text("cluster"),
        _number("sequence"),
        sa.Column("format", sa.SmallInteger, nullable=False),
        _number("epoch"),
        _text("key"),
        _text("kind", 16),
        sa.Column("at", Instant, nullable=False),
        *(_text(name, None) for name in ("actor", "reason")),
        _text("queue"),
        *(_text(name, None) for name in ("on_behalf_of", "user")),
        _text("gang_uid"),
        *(_text(name, None) for name in ("gang", "seats", "holdings", "closes")),
        *(_text(name, 64) for name in ("previous", "digest")),
        sa.PrimaryKeyConstraint("cluster", "sequence", name="pk_transactions"),
        sa.UniqueConstraint("cluster", "key", name="uq_transactions_cluster_key"),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.cluster"], name="fk_transactions_clusters"),
        *(
            _named("transactions", check)
            for check in (counted("sequence"), known("format", (1, 2)), known("kind", kinds))
        ),
    )


def _make_postings() -> None:
    op.create_table(
        "postings",
        _text("cluster"),
        _number("sequence"),
        sa.Column("line", sa.Integer, nullable=False),
        *(_text(name) for name in ("queue", "meter")),
        _text("bucket", 16),
        _amount("amount"),
        _text("claim"),
        sa.PrimaryKeyConstraint("cluster", "sequence", "line", name="pk_postings"),
        sa.ForeignKeyConstraint(
            ["cluster", "sequence"],
            ["transactions.cluster", "transactions.sequence"],
            name="fk_postings_transactions",
        ),
        *(
            _named("postings", check)
            for check in (
                counted("sequence"),
                counted("line"),
                known("bucket", BUCKETS),
                whole("amount"),
                nonzero("amount"),
            )
        ),
        sqlite_with_rowid=False,
    )


def _text(name: str, length: int | None = 253) -> "sa.Column[str]":
    return sa.Column(name, sa.String(length) if length else sa.Text(), nullable=False)


def _number(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger, nullable=False)


def _amount(name: str, *, nullable: bool = False) -> "sa.Column[int]":
    return sa.Column(name, ExactInteger, nullable=nullable)


def _named(table: str, check: sa.CheckConstraint) -> sa.CheckConstraint:
    check.name = op.f(f"ck_{table}_{check.name}")
    return check


def _name(table: str, columns: tuple[str, ...]) -> str:
    return f"ix_{table}_cluster_{'_'.join(columns)}"


# What is written stays as it is, and goes with the transactions that a closing archives.


def _guard_sqlite(table: str) -> None:
    _refuse_in_sqlite(table, "UPDATE")
    closed = "coalesce((SELECT max(sequence) FROM closings WHERE cluster = OLD.cluster), 0)"
    _refuse_in_sqlite(table, "DELETE", f" WHEN OLD.sequence > {closed}")
    _refuse_in_sqlite(table, "INSERT", f" WHEN {' OR '.join(_there(table, key) for key in KEYS[table])}")


def _there(table: str, key: tuple[str, ...]) -> str:
    same = " AND ".join(f"{column} = NEW.{column}" for column in key)
    return f"EXISTS (SELECT 1 FROM {table} WHERE {same})"  # noqa: S608 - our own names


def _refuse_in_sqlite(table: str, verb: str, when: str = "") -> None:
    op.execute(
        f"CREATE TRIGGER {table}_refuse_{verb.lower()} BEFORE {verb} ON {table}{when}"
        f" BEGIN SELECT RAISE(ABORT, '{table} are append-only'); END"
    )


def _guard_postgresql(table: str) -> None:
    op.execute(
        f"CREATE TRIGGER {table}_refuse_change BEFORE UPDATE OR TRUNCATE ON {table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION muster_refuse_change()"
    )
    op.execute(
        f"CREATE TRIGGER {table}_refuse_removal BEFORE DELETE ON {table}"
        " FOR EACH ROW EXECUTE FUNCTION muster_refuse_removal()"
    )
