"""The transactions of the ledger, written or read in order."""

__all__ = ["amend", "base", "carry_forward", "documents", "encoding", "hash_chain", "post", "read", "shared_budgets"]
