"""The answers of earlier cycles that still hold."""

__all__ = ["equivalence", "plan_cache", "queue_cache", "verdict_cache"]
