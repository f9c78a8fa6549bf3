"""The chain of checks that admits or holds a gang."""

__all__ = ["budget", "chain", "completeness", "demand", "elastic", "faults", "replacement_slots", "runtime"]
