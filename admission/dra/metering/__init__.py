"""What devices cost on meters."""

__all__ = ["device_meters", "holdings", "meter_health"]
