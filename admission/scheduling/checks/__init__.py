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
    "replacement_slots",
    "runtime",
]
