"""The transactions of the ledger, written or read in order."""

__all__ = [
    "amend",
    "base",
    "carry_forward",
    "documents",
    "encoding",
    "hash_chain",
    "measured_usage",
    "positions",
    "post",
    "read",
    "shared_budgets",
    "waiting_hours",
]
