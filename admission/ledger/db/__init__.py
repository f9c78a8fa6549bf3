"""The database below the ledger: engines, tables, migrations."""
