"""The accounting rules, which decide the entries that each movement makes."""

__all__ = ["accruals", "books", "device_samples", "measurements", "recent_use", "seat_transfer"]
