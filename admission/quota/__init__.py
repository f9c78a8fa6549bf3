"""The quota that the queues of a tree may still take."""

__all__ = [
    "budget_periods",
    "budgets",
    "evicted_usage",
    "fair_share",
    "headroom",
    "preemption",
    "preemption_rules",
    "queue_order",
    "shortage",
    "tree",
]
