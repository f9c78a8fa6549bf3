"""Requests to the API server."""

__all__ = ["backoff", "connection", "credentials", "errors", "paths"]
