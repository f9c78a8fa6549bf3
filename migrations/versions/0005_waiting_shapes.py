"""What gangs that waited asked for, by day; for `muster capacity`, and no part of the books."""

import sqlalchemy as sa
from alembic import op

from admission.ledger.db.column_types import Instant

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "waiting_shapes",
        sa.Column("cluster", sa.String(253), nullable=False),
        sa.Column("day", Instant, nullable=False),
        sa.Column("queue", sa.String(253), nullable=False),
        sa.Column("namespace", sa.String(253), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("shape", sa.Text, nullable=False),
        sa.Column("seconds", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "day", "queue", "namespace", "digest", name="pk_waiting_shapes"),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.cluster"], name="fk_waiting_shapes_clusters"),
    )


def downgrade() -> None:
    op.drop_table("waiting_shapes")
