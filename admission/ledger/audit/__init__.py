"""Proof that the books are right: verification, replay, archives."""

__all__ = ["close_period", "point_in_time", "rebuild", "verify"]
