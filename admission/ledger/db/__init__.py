"""The database below the ledger: engines, tables, migrations."""

__all__ = ["bulk_insert", "column_types", "database_url", "engines", "errors", "migrations", "prefetch", "tables"]
