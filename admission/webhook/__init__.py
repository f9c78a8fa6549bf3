"""The HTTPS server that the API server asks, its worker processes."""

__all__ = ["handler", "server", "tls", "worker_ipc", "workers"]
