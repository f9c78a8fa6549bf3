"""The state that a leader keeps between cycles."""

__all__ = [
    "evictions",
    "fences",
    "in_flight",
    "inputs",
    "leader",
    "ledger_mirror",
    "pending_pods",
    "queues",
    "result",
    "scheduling_cache",
    "status",
    "term",
]
