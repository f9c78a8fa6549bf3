"""The parsed form of requests for devices: alternatives, constraints, capacity, extended resources."""

__all__ = [
    "capacity",
    "constraints",
    "device_plugins",
    "device_use",
    "extended_resources",
    "gang_request",
    "kinds_of_use",
    "node_resources",
    "requests",
]
