"""The steps of an admission cycle: one class per module, given the parts of the state that it uses."""

__all__ = [
    "build_inputs",
    "catch_up",
    "commit",
    "deallocate",
    "evict",
    "ledger_sync",
    "place",
    "preempt",
    "protection",
    "queue_finalizers",
    "report",
    "schedule",
    "suspend_resume",
]
