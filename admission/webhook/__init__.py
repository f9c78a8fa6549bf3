"""Serves admission reviews over HTTPS, by several worker processes if configured."""

__all__ = ["handler", "server", "tls", "worker_ipc", "workers"]
