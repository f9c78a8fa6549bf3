"""The tables. Changed together with a migration: a test compares the two.

`clusters` holds the head of each cluster's chain. `transactions` and `postings` are the books; triggers made by the
migrations refuse to change or remove their rows. `balances`, `open_gangs`, `open_seats` and `open_holdings` are
projections: what `quota.books.Book` holds after all transactions.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from admission.ledger.columns import ExactInteger, Instant, whole

REVISION = "0001"
"""The newest migration: what this program reads and writes."""

GENESIS = "0" * 64
"""What stands for the predecessor's digest in a chain's first transaction."""

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
    Column("epoch", BigInteger, nullable=False),
    Column("key", String(253), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("at", Instant, nullable=False),
    Column("actor", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("queue", String(253), nullable=False),
    Column("on_behalf_of", Text, nullable=False),
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
    whole("amount"),
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
    Column("settled", Boolean, nullable=False),
    PrimaryKeyConstraint("cluster", "claim_uid"),
    ForeignKeyConstraint(["cluster", "gang_uid"], ["open_gangs.cluster", "open_gangs.gang_uid"]),
    Index(None, "cluster", "gang_uid"),
)
