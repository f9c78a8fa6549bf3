"""Metrics, logs, traces."""

__all__ = ["collectors", "logs", "metrics", "tracing"]
