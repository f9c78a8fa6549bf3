"""Proof that the books are right: verification, replay, archives, kept heads."""

__all__ = ["close_period", "kept_heads", "point_in_time", "rebuild", "verify"]
