"""Derives the ledger entries that follow a grant."""

__all__ = [
    "deleted_queues",
    "dirty",
    "ledger_clock",
    "limits",
    "placement_check",
    "placement_progress",
    "reconciliation",
    "requeue_backoff",
    "transitions",
]
