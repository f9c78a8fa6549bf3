"""The books in SQL: SQLite in WAL mode, or PostgreSQL.

`ledger.SqlLedger` is what the rest of Muster calls; `migrations` makes and upgrades the schema. Rows stay in this
package. The transactions and their postings are only ever added to, chained by hashes; balances and what is open are
projections of them, written in the same SQL transaction.
"""

__all__ = ["audit", "db", "journal", "reports", "sql_ledger"]
