"""Gather, decide, commit: use cases over ports. No library of the shell is named here."""

__all__ = ["cycle", "outcome", "profile", "reconcile", "state"]
