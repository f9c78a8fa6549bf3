"""The chain of checks that decides about one gang."""

__all__ = [
    "budget",
    "chain",
    "completeness",
    "demand",
    "elastic",
    "faults",
    "lender_quota",
    "preference",
    "queue_rules",
    "replacement_slots",
    "runtime",
]
