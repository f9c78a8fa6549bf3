"""Answers of earlier cycles that still stand."""

__all__ = ["equivalence", "plan_cache", "queue_cache", "verdict_cache"]
