"""Makes the statuses of gangs, queues, meters from one snapshot."""

__all__ = ["gang", "gang_cache", "queue"]
