"""The books in SQL: SQLite in WAL mode, or PostgreSQL.

The rest of Muster calls `sql_ledger.SqlLedger`; `db.migrations` creates and upgrades the schema. Rows stay in this
package. Transactions and their postings are append-only and chained by hashes. Balances and the open gangs, seats and
holdings are projections of them, written in the same SQL transaction.
"""

__all__ = ["audit", "db", "head_sinks", "journal", "reports", "sql_ledger"]
