"""What stood for the node of a seat when it was asked for, of seats that were moved to a node that came."""

import sqlalchemy as sa
from alembic import context, op

from admission.errors import LedgerVersionError

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("open_seats", sa.Column("asked_as", sa.String(253), nullable=False, server_default=sa.text("''")))


def downgrade() -> None:
    _refuse_to_forget()
    op.drop_column("open_seats", "asked_as")


def _refuse_to_forget() -> None:
    """Go back only where the books have no such seat, or are removed altogether: an open one would lose its nodes."""
    if not context.get_revision_argument():
        return
    moved = "SELECT count(*) FROM transactions WHERE seats LIKE '%\"asked_as\"%'"
    later = op.get_bind().execute(sa.text(moved)).scalar_one()
    if later:
        raise LedgerVersionError(
            f"revision 0005 does not know what the {later} transactions that moved seats say: restore the backup from"
            " before the upgrade"
        )
