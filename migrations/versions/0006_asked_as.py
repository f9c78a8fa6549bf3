"""What stood for the node of a seat when it was asked for, of seats that were moved to a node that came."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("open_seats", sa.Column("asked_as", sa.String(253), nullable=False, server_default=sa.text("''")))


def downgrade() -> None:
    op.drop_column("open_seats", "asked_as")
