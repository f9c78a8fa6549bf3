"""The books: chains, transactions, postings and their projections."""

import sqlalchemy as sa
from alembic import op

from admission.ledger.db.column_types import ExactInteger, Instant, whole

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

APPEND_ONLY = ("transactions", "postings")


def upgrade() -> None:
    _books()
    _projections()
    for table in APPEND_ONLY:
        if op.get_context().dialect.name == "postgresql":
            _refuse_in_postgresql(table)
        else:
            _refuse_in_sqlite(table)


def downgrade() -> None:
    for table in ("open_holdings", "open_seats", "open_gangs", "balances", "postings", "transactions", "clusters"):
        op.drop_table(table)  # with its triggers
    if op.get_context().dialect.name == "postgresql":
        op.execute("DROP FUNCTION muster_refuse_change()")


def _books() -> None:
    op.create_table(
        "clusters",
        _text("cluster"),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        _text("digest", 64),
        sa.PrimaryKeyConstraint("cluster", name="pk_clusters"),
    )
    op.create_table(
        "transactions",
        _text("cluster"),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        _text("key"),
        _text("kind", 16),
        sa.Column("at", Instant, nullable=False),
        _text("actor", None),
        _text("reason", None),
        _text("queue"),
        _text("on_behalf_of", None),
        _text("gang_uid"),
        _text("gang", None),
        _text("seats", None),
        _text("holdings", None),
        _text("closes", None),
        _text("previous", 64),
        _text("digest", 64),
        sa.PrimaryKeyConstraint("cluster", "sequence", name="pk_transactions"),
        sa.UniqueConstraint("cluster", "key", name="uq_transactions_cluster_key"),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.cluster"], name="fk_transactions_clusters"),
    )
    op.create_index("ix_transactions_cluster_at", "transactions", ["cluster", "at"])
    op.create_table(
        "postings",
        _text("cluster"),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("line", sa.Integer, nullable=False),
        _text("queue"),
        _text("meter"),
        _text("bucket", 16),
        sa.Column("amount", ExactInteger, nullable=False),
        _text("claim"),
        sa.PrimaryKeyConstraint("cluster", "sequence", "line", name="pk_postings"),
        sa.ForeignKeyConstraint(
            ["cluster", "sequence"],
            ["transactions.cluster", "transactions.sequence"],
            name="fk_postings_transactions",
        ),
        _whole("postings"),
    )
    op.create_index("ix_postings_cluster_queue_sequence", "postings", ["cluster", "queue", "sequence"])


def _projections() -> None:
    op.create_table(
        "balances",
        _text("cluster"),
        _text("queue"),
        _text("meter"),
        _text("bucket", 16),
        sa.Column("amount", ExactInteger, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "queue", "meter", "bucket", name="pk_balances"),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.cluster"], name="fk_balances_clusters"),
        _whole("balances"),
    )
    op.create_table(
        "open_gangs",
        _text("cluster"),
        _text("gang_uid"),
        _text("gang", None),
        _text("queue"),
        sa.Column("reserved_at", Instant, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "gang_uid", name="pk_open_gangs"),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.cluster"], name="fk_open_gangs_clusters"),
    )
    _of_gangs("open_seats", "pod_uid", _text("pod", None), _text("node"), _text("claims", None))
    _of_gangs(
        "open_holdings",
        "claim_uid",
        _text("claim", None),
        _text("devices", None),
        _text("charge", None),
        sa.Column("settled", sa.Boolean, nullable=False),
    )


def _of_gangs(table: str, key: str, *columns: "sa.Column[str] | sa.Column[bool]") -> None:
    op.create_table(
        table,
        _text("cluster"),
        _text(key),
        _text("gang_uid"),
        *columns,
        sa.PrimaryKeyConstraint("cluster", key, name=f"pk_{table}"),
        sa.ForeignKeyConstraint(
            ["cluster", "gang_uid"], ["open_gangs.cluster", "open_gangs.gang_uid"], name=f"fk_{table}_open_gangs"
        ),
    )
    op.create_index(f"ix_{table}_cluster_gang_uid", table, ["cluster", "gang_uid"])


def _text(name: str, length: int | None = 253) -> "sa.Column[str]":
    return sa.Column(name, sa.String(length) if length else sa.Text(), nullable=False)


def _whole(table: str) -> sa.CheckConstraint:
    check = whole("amount")
    check.name = op.f(f"ck_{table}_amount_is_whole")
    return check


def _refuse_in_sqlite(table: str) -> None:
    for verb in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER {table}_refuse_{verb.lower()} BEFORE {verb} ON {table}"
            f" BEGIN SELECT RAISE(ABORT, '{table} are append-only'); END"
        )


def _refuse_in_postgresql(table: str) -> None:
    op.execute(
        "CREATE OR REPLACE FUNCTION muster_refuse_change() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION '% are append-only', TG_TABLE_NAME; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
        " FOR EACH STATEMENT EXECUTE FUNCTION muster_refuse_change()"
    )
