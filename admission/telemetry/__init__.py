"""Export of metrics, logs or traces."""

__all__ = ["allocation_page", "collectors", "logs", "metrics", "tracing"]
