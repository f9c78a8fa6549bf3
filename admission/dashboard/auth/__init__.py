"""Decides what each visitor of the dashboard may see."""

__all__ = ["authentication", "rbac", "session"]
