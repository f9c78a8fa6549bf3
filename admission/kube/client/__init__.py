"""Requests to the API server."""

__all__ = ["backoff", "bounded_wait", "connection", "credentials", "errors", "paths"]
