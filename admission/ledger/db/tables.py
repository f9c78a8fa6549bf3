"""The ledger's tables. They change together with a migration: a test compares the two.

`clusters` holds the head of each cluster's chain. `transactions` and `postings` are the books. `balances`,
`open_gangs`, `open_seats` and `open_holdings` are projections: the content of `accounting.books.Book` after all
transactions. `closings` and `carried_usage` remain of periods whose rows were archived. `shared_budgets` and
`budget_shares` hold what clusters have taken of budgets that they share, `waiting_hours` how long gangs have waited in
each queue, for charts, `waiting_shapes` the same by what they ask for; only these four are not part of any chain.
`measured_usage` holds what devices did; transactions vouch for it.

Triggers in the migrations keep `transactions`, `postings`, `closings`, `carried_usage` and `measured_usage`
append-only, except that transactions, their postings and their measured use may be removed up to the sequence through
which `closings` records them as archived.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import TypeEngine

from admission.api.muster.ledger_entries import Bucket, Kind
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

REVISION = "0006"
"""The newest migration, whose schema this program reads and writes."""

FORMATS = (1, 2)
"""The formats in which transactions are hashed: see `hash_chain`. Rows from before revision 0002 have format 1."""

GENESIS = "0" * 64
"""The predecessor's digest in the first transaction of a chain."""

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

clusters = Table(
    "clusters",
    metadata,
    Column("cluster", String(253), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
    PrimaryKeyConstraint("cluster"),
)

transactions = Table(
    "transactions",
    metadata,
    Column("cluster", String(253), nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("format", SmallInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("key", String(253), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("at", Instant, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("queue", String(253), nullable=False),
    Column("on_behalf_of", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("gang_uid", String(253), nullable=False),
    Column("gang", Text, nullable=False),
    Column("seats", Text, nullable=False),
    Column("holdings", Text, nullable=False),
    Column("closes", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    PrimaryKeyConstraint("cluster", "sequence"),
    UniqueConstraint("cluster", "key"),
    ForeignKeyConstraint(["cluster"], ["clusters.cluster"]),
    Index(None, "cluster", "at"),
    Index(None, "cluster", "kind", "sequence"),
    Index(None, "cluster", "gang_uid", "sequence"),
    counted("sequence"),
    known("format", FORMATS),
    known("kind", [kind.value for kind in Kind]),
)

postings = Table(
    "postings",
    metadata,
    Column("cluster", String(253), nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("line", Integer, nullable=False),
    Column("queue", String(253), nullable=False),
    Column("meter", String(253), nullable=False),
    Column("bucket", String(16), nullable=False),
    Column("amount", ExactInteger, nullable=False),
    Column("claim", String(253), nullable=False),
    PrimaryKeyConstraint("cluster", "sequence", "line"),
    ForeignKeyConstraint(["cluster", "sequence"], ["transactions.cluster", "transactions.sequence"]),
    Index(None, "cluster", "queue", "sequence"),
    counted("sequence"),
    counted("line"),
    known("bucket", [bucket.value for bucket in Bucket]),
    whole("amount"),
    nonzero("amount"),
    sqlite_with_rowid=False,
)

balances = Table(
    "balances",
    metadata,
    Column("cluster", String(253), nullable=False),
    Column("queue", String(253), nullable=False),
    Column("meter", String(253), nullable=False),
    Column("bucket", String(16), nullable=False),
    Column("amount", ExactInteger, nullable=False),
    PrimaryKeyConstraint("cluster", "queue", "meter", "bucket"),
    ForeignKeyConstraint(["cluster"], ["clusters.cluster"]),
    whole("amount"),
)

open_gangs = Table(
    "open_gangs",
    metadata,
    Column("cluster", String(253), nullable=False),
    Column("gang_uid", String(253), nullable=False),
    Column("gang", Text, nullable=False),
    Column("queue", String(253), nullable=False),
    Column("user", Text, nullable=False),
    Column("reserved_at", Instant, nullable=False),
    PrimaryKeyConstraint("cluster", "gang_uid"),
    ForeignKeyConstraint(["cluster"], ["clusters.cluster"]),
)

open_seats = Table(
    "open_seats",
    metadata,
    Column("cluster", String(253), nullable=False),
    Column("pod_uid", String(253), nullable=False),
    Column("gang_uid", String(253), nullable=False),
    Column("pod", Text, nullable=False),
    Column("node", String(253), nullable=False),
    Column("claims", Text, nullable=False),
    Column("asked_as", String(253), nullable=False, server_default=text("''")),
    PrimaryKeyConstraint("cluster", "pod_uid"),
    ForeignKeyConstraint(["cluster", "gang_uid"], ["open_gangs.cluster", "open_gangs.gang_uid"]),
    Index(None, "cluster", "gang_uid"),
)

open_holdings = Table(
    "open_holdings",
    metadata,
    Column("cluster", String(253), nullable=False),
    Column("claim_uid", String(253), nullable=False),
    Column("gang_uid", String(253), nullable=False),
    Column("claim", Text, nullable=False),
    Column("devices", Text, nullable=False),
    Column("charge", Text, nullable=False),
    Column("classes", Text, nullable=False),
    Column("settled", Boolean, nullable=False),
    PrimaryKeyConstraint("cluster", "claim_uid"),
    ForeignKeyConstraint(["cluster", "gang_uid"], ["open_gangs.cluster", "open_gangs.gang_uid"]),
    Index(None, "cluster", "gang_uid"),
)

closings = Table(
    "closings",
    metadata,
    Column("cluster", String(253), nullable=False),
    Column("sequence", BigInteger, nullable=False),  # closed through: a usage entry, so nothing had accrued there
    Column("epoch", BigInteger, nullable=False),  # of that transaction, as its digest
    Column("digest", String(64), nullable=False),
    Column("previous_sequence", BigInteger, nullable=False),
    Column("at", Instant, nullable=False),
    Column("marked", Instant, nullable=False),  # the time of that transaction
    Column("transactions", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("archive", Text, nullable=False),
    Column("archive_digest", String(64), nullable=False),
    PrimaryKeyConstraint("cluster", "sequence"),
    ForeignKeyConstraint(["cluster"], ["clusters.cluster"]),
    counted("sequence"),
)

carried_usage = Table(
    "carried_usage",
    metadata,
    Column("cluster", String(253), nullable=False),
    Column("queue", String(253), nullable=False),
    Column("meter", String(253), nullable=False),
    Column("start", Instant, nullable=False),
    Column("until", Instant, nullable=False),
    Column("seconds", ExactInteger, nullable=False),  # meter-seconds
    Column("sequence", BigInteger, nullable=False),  # of the closing
    PrimaryKeyConstraint("cluster", "queue", "meter", "start"),
    ForeignKeyConstraint(["cluster", "sequence"], ["closings.cluster", "closings.sequence"]),
    Index(None, "cluster", "until"),
    whole("seconds"),
)

waiting_hours = Table(
    "waiting_hours",
    metadata,
    Column("cluster", String(253), nullable=False),
    Column("hour", Instant, nullable=False),
    Column("queue", String(253), nullable=False),
    Column("seconds", BigInteger, nullable=False),  # gang-seconds
    PrimaryKeyConstraint("cluster", "hour", "queue"),
    ForeignKeyConstraint(["cluster"], ["clusters.cluster"]),
)

waiting_shapes = Table(
    "waiting_shapes",
    metadata,
    Column("cluster", String(253), nullable=False),
    Column("day", Instant, nullable=False),
    Column("queue", String(253), nullable=False),
    Column("namespace", String(253), nullable=False),
    Column("digest", String(64), nullable=False),  # SHA-256 of the shape
    Column("shape", Text, nullable=False),
    Column("seconds", BigInteger, nullable=False),  # gang-seconds
    PrimaryKeyConstraint("cluster", "day", "queue", "namespace", "digest"),
    ForeignKeyConstraint(["cluster"], ["clusters.cluster"]),
)

measured_usage = Table(
    "measured_usage",
    metadata,
    Column("cluster", String(253), nullable=False),
    Column("sequence", BigInteger, nullable=False),  # of the transaction that vouches for it
    Column("line", Integer, nullable=False),
    Column("queue", String(253), nullable=False),
    Column("gang_uid", String(253), nullable=False),
    Column("gang", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("claim_uid", String(253), nullable=False),
    Column("claim", Text, nullable=False),
    Column("start", Instant, nullable=False),
    Column("until", Instant, nullable=False),
    Column("devices", Integer, nullable=False),
    Column("measured_seconds", ExactInteger, nullable=False),
    Column("used_microseconds", ExactInteger),
    Column("memory_peak", ExactInteger),  # bytes
    Column("powered_seconds", ExactInteger, nullable=False),
    Column("energy", ExactInteger),  # millijoules
    PrimaryKeyConstraint("cluster", "sequence", "line"),
    UniqueConstraint("cluster", "claim_uid", "start"),
    ForeignKeyConstraint(["cluster"], ["clusters.cluster"]),
    Index(None, "cluster", "start"),
    counted("sequence"),
    counted("line"),
    *(whole(name) for name in ("measured_seconds", "powered_seconds")),
    *(whole_or_missing(name) for name in ("used_microseconds", "memory_peak", "energy")),
    *(
        check
        for name in ("measured_seconds", "used_microseconds", "memory_peak", "powered_seconds", "energy")
        for check in natural(name)
    ),
)

BUDGET_KEY: Mapping[str, TypeEngine[Any]] = {
    "queue": String(253),
    "meter": String(253),
    "start": Instant(),
    "until": Instant(),
}
"""The key of a shared budget, with its column types. It has `until` since a month and a quarter may begin together."""


def _budget_key() -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name, kind in BUDGET_KEY.items()]


shared_budgets = Table(
    "shared_budgets",
    metadata,
    *_budget_key(),
    Column("limit", ExactInteger, nullable=False),
    Column("taken", ExactInteger, nullable=False),
    PrimaryKeyConstraint(*BUDGET_KEY),
    whole('"limit"', name="limit"),
    whole("taken"),
    *natural("taken"),
)

budget_shares = Table(
    "budget_shares",
    metadata,
    Column("cluster", String(253), nullable=False),
    *_budget_key(),
    Column("seconds", ExactInteger, nullable=False),
    PrimaryKeyConstraint("cluster", *BUDGET_KEY),
    ForeignKeyConstraint(["cluster"], ["clusters.cluster"]),
    ForeignKeyConstraint([*BUDGET_KEY], [f"shared_budgets.{column}" for column in BUDGET_KEY]),
    Index(None, *BUDGET_KEY),
    whole("seconds"),
    *natural("seconds"),
)
