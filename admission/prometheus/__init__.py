"""Asks a Prometheus-compatible server what devices did."""

__all__ = ["api_client", "device_meter", "device_queries"]
