"""Finds the gangs to evict so that another one can start."""

__all__ = ["candidates", "equivalence", "nominations", "targets", "victim_searches"]
