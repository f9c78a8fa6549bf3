"""What the books say of usage."""

__all__ = [
    "allocation_intervals",
    "export",
    "focus",
    "statement",
    "time_series",
    "transaction_search",
    "usage",
    "usage_report",
]
