"""The chain of checks that decides about one gang."""

__all__ = ["budget", "chain", "completeness", "demand", "elastic", "faults", "replacement_slots", "runtime"]
