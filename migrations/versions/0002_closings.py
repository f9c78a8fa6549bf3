"""Who it was for, closed periods, shared budgets; checks, indexes, and a form to hash that is faster.

The transactions that are there keep their digests: their format is 1.
"""

from datetime import datetime

import sqlalchemy as sa
from alembic import context, op

from admission.errors import LedgerVersionError
from admission.ledger.db.column_types import ExactInteger, Instant, counted, known, natural, nonzero, whole

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

KINDS = ("grant", "reserve", "settle", "release", "evict", "adjust", "usage", "close")
BUCKETS = ("entitlement", "free", "reserved", "used", "supply", "spent")

BEFORE = {
    "transactions": "cluster, sequence, epoch, key, kind, at, actor, reason, queue, on_behalf_of, gang_uid, gang,"
    " seats, holdings, closes, previous, digest",
    "postings": "cluster, sequence, line, queue, meter, bucket, amount, claim",
    "open_gangs": "cluster, gang_uid, gang, queue, reserved_at",
    "open_seats": "cluster, pod_uid, gang_uid, pod, node, claims",
    "open_holdings": "cluster, claim_uid, gang_uid, claim, devices, charge, settled",
}
"""The columns that tables had; those that others refer to come first."""

ADDED = {
    ("transactions", "format"): "1",
    ("transactions", "user"): "",
    ("open_gangs", "user"): "",
    ("open_holdings", "classes"): "{}",
}
"""Columns of those tables that are new, and what they hold in the rows that are there."""

INDEXES = {
    "transactions": ("at",),
    "postings": ("queue", "sequence"),
    "open_seats": ("gang_uid",),
    "open_holdings": ("gang_uid",),
}
"""The indexes that there were: by cluster, and these."""

NEW_INDEXES = (("kind", "sequence"), ("gang_uid", "sequence"))
"""Of transactions."""

KEYS = {
    "transactions": (("cluster", "sequence"), ("cluster", "key")),
    "postings": (("cluster", "sequence", "line"),),
    "closings": (("cluster", "sequence"),),
    "carried_usage": (("cluster", "queue", "meter", "start"),),
}
"""What no two rows share. SQLite's INSERT OR REPLACE removes the row that is there, and tells no trigger on DELETE."""

APPEND_ONLY = tuple(KEYS)
ARCHIVED = ("transactions", "postings")
"""Those whose rows may be removed, up to where `closings` says that they were archived."""


def upgrade() -> None:
    if _in_postgresql():
        _extend()
    else:
        _rebuild(now=True)
    for columns in NEW_INDEXES:
        _index("transactions", columns)
    _make_closings()
    _make_shares()
    if _in_postgresql():
        _guard_postgresql()
    else:
        _guard_sqlite()


def downgrade() -> None:
    _refuse_to_forget()
    _unguard()
    for table in ("budget_shares", "shared_budgets", "carried_usage", "closings"):
        op.drop_table(table)  # with its triggers
    for columns in NEW_INDEXES:
        op.drop_index(_name("transactions", columns))
    if _in_postgresql():
        _shorten()
        op.execute("DROP FUNCTION muster_refuse_removal()")
    else:
        _rebuild(now=False)
    _guard_as_before()


def _in_postgresql() -> bool:
    return op.get_context().dialect.name == "postgresql"


def _refuse_to_forget() -> None:
    """Go back only where the books can be verified afterwards, or are removed altogether."""
    if not context.get_revision_argument():  # all the way, to `base`
        return
    later = op.get_bind().execute(sa.text("SELECT count(*) FROM transactions WHERE format > 1")).scalar_one()
    closed = op.get_bind().execute(sa.text("SELECT count(*) FROM closings")).scalar_one()
    if later or closed:
        raise LedgerVersionError(
            f"revision 0001 could not verify the {later} transactions and {closed} closings written since it was left:"
            " restore the backup from before the upgrade"
        )


# PostgreSQL alters its tables in place.


def _extend() -> None:
    for (table, name), value in ADDED.items():
        kind = sa.SmallInteger() if name == "format" else sa.Text()
        op.add_column(table, sa.Column(name, kind, nullable=False, server_default=value))
        op.alter_column(table, name, server_default=None)
    for table, check in _checks():
        op.create_check_constraint(op.f(f"ck_{table}_{check.name}"), table, check.sqltext)


def _shorten() -> None:
    for table, check in _checks():
        op.drop_constraint(op.f(f"ck_{table}_{check.name}"), table, type_="check")
    for table, name in ADDED:
        op.drop_column(table, name)


def _checks() -> list[tuple[str, sa.CheckConstraint]]:
    return [
        ("transactions", counted("sequence")),
        ("transactions", known("format", (1, 2))),
        ("transactions", known("kind", KINDS)),
        ("postings", counted("sequence")),
        ("postings", counted("line")),
        ("postings", known("bucket", BUCKETS)),
        ("postings", nonzero("amount")),
    ]


# SQLite adds no constraint to a table that is there, so its tables are made anew.


def _rebuild(*, now: bool) -> None:
    """Replace tables by those of this revision, or by those before it."""
    for table in BEFORE:
        op.rename_table(table, f"old_{table}")  # references follow the name
    for table, indexed in INDEXES.items():
        op.drop_index(_name(table, indexed))
    _make_books(now=now)
    _make_projections(now=now)
    for table, columns in BEFORE.items():
        new = {f'"{name}"': f"'{value}'" for (of, name), value in ADDED.items() if of == table and now}
        names, values = ", ".join([columns, *new]), ", ".join([columns, *new.values()])
        op.execute(f"INSERT INTO {table} ({names}) SELECT {values} FROM old_{table}")  # noqa: S608 - our own names
    for table in reversed(BEFORE):
        op.drop_table(f"old_{table}")  # with its triggers
    for table, indexed in INDEXES.items():
        _index(table, indexed)


def _make_books(*, now: bool) -> None:
    op.create_table(
        "transactions",
        _text("cluster"),
        _number("sequence"),
        *([sa.Column("format", sa.SmallInteger, nullable=False)] if now else []),
        _number("epoch"),
        _text("key"),
        _text("kind", 16),
        _instant("at"),
        *_texts("actor", "reason"),
        _text("queue"),
        *_texts("on_behalf_of", *(["user"] if now else [])),
        _text("gang_uid"),
        *_texts("gang", "seats", "holdings", "closes"),
        _text("previous", 64),
        _text("digest", 64),
        _key("transactions", "cluster", "sequence"),
        sa.UniqueConstraint("cluster", "key", name="uq_transactions_cluster_key"),
        _reference("transactions", "clusters", "cluster"),
        *_of("transactions", now=now),
    )
    op.create_table(
        "postings",
        _text("cluster"),
        _number("sequence"),
        sa.Column("line", sa.Integer, nullable=False),
        *(_text(name) for name in ("queue", "meter")),
        _text("bucket", 16),
        _amount("amount"),
        _text("claim"),
        _key("postings", "cluster", "sequence", "line"),
        _reference("postings", "transactions", "cluster", "sequence"),
        _named("postings", whole("amount")),
        *_of("postings", now=now),
        sqlite_with_rowid=not now,
    )


def _make_projections(*, now: bool) -> None:
    op.create_table(
        "open_gangs",
        *(_text(name) for name in ("cluster", "gang_uid")),
        _text("gang", None),
        _text("queue"),
        *_texts(*(["user"] if now else [])),
        _instant("reserved_at"),
        _key("open_gangs", "cluster", "gang_uid"),
        _reference("open_gangs", "clusters", "cluster"),
    )
    op.create_table(
        "open_seats",
        *(_text(name) for name in ("cluster", "pod_uid", "gang_uid")),
        _text("pod", None),
        _text("node"),
        _text("claims", None),
        _key("open_seats", "cluster", "pod_uid"),
        _reference("open_seats", "open_gangs", "cluster", "gang_uid"),
    )
    op.create_table(
        "open_holdings",
        *(_text(name) for name in ("cluster", "claim_uid", "gang_uid")),
        *_texts("claim", "devices", "charge", *(["classes"] if now else [])),
        sa.Column("settled", sa.Boolean, nullable=False),
        _key("open_holdings", "cluster", "claim_uid"),
        _reference("open_holdings", "open_gangs", "cluster", "gang_uid"),
    )


def _of(table: str, *, now: bool) -> list[sa.CheckConstraint]:
    return [_named(table, check) for of, check in _checks() if of == table and now]


# What is new.


def _make_closings() -> None:
    op.create_table(
        "closings",
        _text("cluster"),
        *(_number(name) for name in ("sequence", "epoch")),
        _text("digest", 64),
        _number("previous_sequence"),
        *(_instant(name) for name in ("at", "marked")),
        _number("transactions"),
        *_texts("state", "archive"),
        _text("archive_digest", 64),
        _key("closings", "cluster", "sequence"),
        _reference("closings", "clusters", "cluster"),
        _named("closings", counted("sequence")),
    )
    op.create_table(
        "carried_usage",
        *(_text(name) for name in ("cluster", "queue", "meter")),
        *(_instant(name) for name in ("start", "until")),
        _amount("seconds"),
        _number("sequence"),
        _key("carried_usage", "cluster", "queue", "meter", "start"),
        _reference("carried_usage", "closings", "cluster", "sequence"),
        _named("carried_usage", whole("seconds")),
    )
    _index("carried_usage", ("until",))


def _make_shares() -> None:
    budget = ("queue", "meter", "start", "until")
    op.create_table(
        "shared_budgets",
        *(_text(name) for name in ("queue", "meter")),
        *(_instant(name) for name in ("start", "until")),
        *(_amount(name) for name in ("limit", "taken")),
        _key("shared_budgets", *budget),
        _named("shared_budgets", whole('"limit"', name="limit")),
        _named("shared_budgets", whole("taken")),
        *(_named("shared_budgets", check) for check in natural("taken")),
    )
    op.create_table(
        "budget_shares",
        *(_text(name) for name in ("cluster", "queue", "meter")),
        *(_instant(name) for name in ("start", "until")),
        _amount("seconds"),
        _key("budget_shares", "cluster", *budget),
        _reference("budget_shares", "clusters", "cluster"),
        _reference("budget_shares", "shared_budgets", *budget),
        _named("budget_shares", whole("seconds")),
        *(_named("budget_shares", check) for check in natural("seconds")),
    )
    op.create_index("ix_budget_shares_queue_meter_start_until", "budget_shares", list(budget))


def _text(name: str, length: int | None = 253) -> "sa.Column[str]":
    return sa.Column(name, sa.String(length) if length else sa.Text(), nullable=False)


def _texts(*names: str) -> "list[sa.Column[str]]":
    return [_text(name, None) for name in names]


def _number(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger, nullable=False)


def _amount(name: str) -> "sa.Column[int]":
    return sa.Column(name, ExactInteger, nullable=False)


def _instant(name: str) -> "sa.Column[datetime]":
    return sa.Column(name, Instant, nullable=False)


def _key(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=f"pk_{table}")


def _reference(table: str, other: str, *columns: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(columns, [f"{other}.{column}" for column in columns], name=f"fk_{table}_{other}")


def _named(table: str, check: sa.CheckConstraint) -> sa.CheckConstraint:
    check.name = op.f(f"ck_{table}_{check.name}")
    return check


def _name(table: str, columns: tuple[str, ...]) -> str:
    return f"ix_{table}_cluster_{'_'.join(columns)}"


def _index(table: str, columns: tuple[str, ...]) -> None:
    op.create_index(_name(table, columns), table, ["cluster", *columns])


# What is written stays as it is.


def _guard_sqlite() -> None:
    for table in APPEND_ONLY:
        _refuse_in_sqlite(table, "UPDATE")
        closed = "coalesce((SELECT max(sequence) FROM closings WHERE cluster = OLD.cluster), 0)"
        _refuse_in_sqlite(table, "DELETE", f" WHEN OLD.sequence > {closed}" if table in ARCHIVED else "")
        _refuse_in_sqlite(table, "INSERT", f" WHEN {' OR '.join(_there(table, key) for key in KEYS[table])}")


def _there(table: str, key: tuple[str, ...]) -> str:
    same = " AND ".join(f"{column} = NEW.{column}" for column in key)
    return f"EXISTS (SELECT 1 FROM {table} WHERE {same})"  # noqa: S608 - our own names


def _refuse_in_sqlite(table: str, verb: str, when: str = "") -> None:
    op.execute(
        f"CREATE TRIGGER {table}_refuse_{verb.lower()} BEFORE {verb} ON {table}{when}"
        f" BEGIN SELECT RAISE(ABORT, '{table} are append-only'); END"
    )


def _guard_postgresql() -> None:
    op.execute(
        "CREATE FUNCTION muster_refuse_removal() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF OLD.sequence <= (SELECT max(sequence) FROM closings WHERE cluster = OLD.cluster) THEN RETURN OLD; END IF;"
        " RAISE EXCEPTION '% are append-only', TG_TABLE_NAME; END $$"
    )
    for table in ARCHIVED:
        op.execute(f"DROP TRIGGER {table}_refuse_change ON {table}")
        _refuse_in_postgresql(table, "UPDATE OR TRUNCATE")
        op.execute(
            f"CREATE TRIGGER {table}_refuse_removal BEFORE DELETE ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION muster_refuse_removal()"
        )
    for table in APPEND_ONLY[len(ARCHIVED) :]:
        _refuse_in_postgresql(table, "UPDATE OR DELETE OR TRUNCATE")


def _refuse_in_postgresql(table: str, verbs: str) -> None:
    op.execute(
        f"CREATE TRIGGER {table}_refuse_change BEFORE {verbs} ON {table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION muster_refuse_change()"
    )


def _unguard() -> None:
    for table in ARCHIVED:
        for what in ("change", "removal") if _in_postgresql() else ("update", "delete", "insert"):
            op.execute(f"DROP TRIGGER {table}_refuse_{what}" + (f" ON {table}" if _in_postgresql() else ""))


def _guard_as_before() -> None:
    for table in ARCHIVED:
        if _in_postgresql():
            _refuse_in_postgresql(table, "UPDATE OR DELETE OR TRUNCATE")
        else:
            for verb in ("UPDATE", "DELETE"):
                _refuse_in_sqlite(table, verb)
