"""The parsed form of requests for devices: alternatives, constraints, capacity, extended resources."""

__all__ = [
    "capacity",
    "constraints",
    "device_plugins",
    "device_ties",
    "device_use",
    "extended_resources",
    "gang_request",
    "node_resources",
    "requests",
]
