"""The accounting rules, which decide the entries that each movement makes."""

__all__ = ["accruals", "books", "device_samples", "measurements", "memory_use", "recent_use", "seat_transfer"]
