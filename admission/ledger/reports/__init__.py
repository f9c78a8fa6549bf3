"""Reports on usage from the ledger's books."""

__all__ = [
    "allocation_intervals",
    "export",
    "focus",
    "member_usage",
    "memory_asked",
    "statement",
    "time_series",
    "transaction_search",
    "usage",
    "usage_report",
    "utilization",
    "waiting_series",
]
