"""What queues say of gangs by what their devices do."""

__all__ = ["idle", "memory"]
