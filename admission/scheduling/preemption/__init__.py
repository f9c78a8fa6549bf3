"""Finds the gangs that are evicted so that another one can start."""

__all__ = ["candidates", "nominations", "targets"]
