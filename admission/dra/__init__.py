"""Structured allocation of devices to the pods of a gang."""

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
