"""Serves admission reviews over HTTPS, by several worker processes if configured."""

__all__ = ["handler", "known_paths", "listener", "path_rotation", "server", "tls", "worker_ipc", "workers"]
