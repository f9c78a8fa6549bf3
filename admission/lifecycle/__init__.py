"""Derives what follows from a grant until it is released."""

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
