"""The equivalence classes of interchangeable devices or nodes."""

__all__ = [
    "device_signature",
    "node_contents",
    "node_signature",
    "node_usage",
    "selected_devices",
    "tied_devices",
    "usage_overlay",
]
