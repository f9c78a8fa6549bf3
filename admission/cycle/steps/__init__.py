"""The steps of an admission cycle, one module for each."""

__all__ = [
    "catch_up",
    "commit",
    "deallocate",
    "evict",
    "ledger_sync",
    "place",
    "preempt",
    "protection",
    "queue_finalizers",
    "suspend_resume",
    "usage_history",
]
