"""Which nodes would have to come so that held gangs start."""

__all__ = ["node_needs"]
