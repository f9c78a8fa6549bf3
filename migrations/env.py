"""Run by alembic for every command; `admission.ledger.db.migrations` gives it a connection in a SQL transaction."""

from alembic import context
from sqlalchemy import text

from admission.ledger.db import migrations, tables

LOCK = 0x6D757374657200
"""Key of PostgreSQL's advisory lock: "muster"."""

connection = context.config.attributes["connection"]

if connection.dialect.name == "postgresql":
    connection.execute(text(f"SET LOCAL lock_timeout = '{migrations.LOCK_SECONDS * 1000:.0f}ms'"))
    connection.execute(text("SET LOCAL statement_timeout = '15min'"))
    # A script may compute for long between two statements.
    connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})

context.configure(
    connection=connection, target_metadata=tables.metadata, compare_type=True, transaction_per_migration=False
)

with context.begin_transaction():
    context.run_migrations()
