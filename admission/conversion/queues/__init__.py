"""Queues with Meters in place of what Kueue, Volcano or a ResourceQuota limits."""

__all__ = ["kueue", "resource_quotas", "volcano"]
