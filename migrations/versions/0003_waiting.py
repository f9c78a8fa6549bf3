"""How long gangs have waited in each queue, by hour; for charts, and no part of the books."""

import sqlalchemy as sa
from alembic import op

from admission.ledger.db.column_types import Instant

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "waiting_hours",
        sa.Column("cluster", sa.String(253), nullable=False),
        sa.Column("hour", Instant, nullable=False),
        sa.Column("queue", sa.String(253), nullable=False),
        sa.Column("seconds", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("cluster", "hour", "queue", name="pk_waiting_hours"),
        sa.ForeignKeyConstraint(["cluster"], ["clusters.cluster"], name="fk_waiting_hours_clusters"),
    )


def downgrade() -> None:
    op.drop_table("waiting_hours")
