"""The answers of earlier cycles that still hold."""

__all__ = ["device_companions", "equivalence", "member_usage", "plan_cache", "queue_cache", "verdict_cache"]
