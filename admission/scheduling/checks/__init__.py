"""Admits or holds one gang, by a chain of checks."""

__all__ = ["budget", "chain", "completeness", "demand", "elastic", "faults", "replacement_slots", "runtime"]
