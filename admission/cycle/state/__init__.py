"""What a leader keeps from one cycle to the next, part by part."""

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
