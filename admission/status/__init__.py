"""Builds the statuses of gangs, queues or meters from one snapshot."""

__all__ = ["gang", "gang_cache", "queue"]
