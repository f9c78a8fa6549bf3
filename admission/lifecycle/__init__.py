"""The rules of what becomes of a gang after its grant: ledger entries, limits, evictions, back-off."""

__all__ = [
    "deleted_queues",
    "dirty",
    "eviction",
    "gang_requests",
    "ledger_clock",
    "limits",
    "placement_check",
    "placement_progress",
    "reconciliation",
    "refusals",
    "requeue_backoff",
    "start_timeout",
    "transitions",
]
