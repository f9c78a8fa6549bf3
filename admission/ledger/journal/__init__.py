"""The transactions of the ledger, written or read in order."""
