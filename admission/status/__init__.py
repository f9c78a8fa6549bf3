"""What gangs, queues are told in their status."""

__all__ = ["gang", "gang_cache", "queue"]
