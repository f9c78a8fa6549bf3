"""Runs one admission cycle over ports, without any library of the shell."""

__all__ = ["cycle", "outcome", "reconcile", "state"]
