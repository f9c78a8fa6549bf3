"""The cost of devices on meters."""

__all__ = ["device_meters", "holdings", "meter_health"]
