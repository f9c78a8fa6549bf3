"""The local store of what the API server's watches deliver."""

__all__ = ["dashboard_store", "reflector", "store", "watched_resources"]
