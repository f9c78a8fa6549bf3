"""Builds what is reported of gangs, queues, meters or devices from one snapshot, and says what would mend a hold."""

__all__ = ["advice", "gang", "gang_cache", "outside_queues", "queue"]
