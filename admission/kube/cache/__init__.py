"""The local cache of the objects that the API server's watches deliver."""

__all__ = ["dashboard_store", "reflector", "store", "watched_resources"]
