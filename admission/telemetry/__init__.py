"""Export of metrics, logs or traces."""

__all__ = ["collectors", "logs", "metrics", "tracing"]
