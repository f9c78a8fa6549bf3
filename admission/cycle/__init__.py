"""Runs one admission cycle over ports; no library of the shell is named here."""

__all__ = ["cycle", "outcome", "profile", "reconcile", "state"]
