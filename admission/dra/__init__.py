"""Structured allocation of devices."""

__all__ = [
    "allocator",
    "compatibility",
    "diagnosis",
    "gang_planner",
    "inventory",
    "metering",
    "planner",
    "requests",
    "state",
]
