"""Builds what is reported of gangs, queues, meters or devices from one snapshot."""

__all__ = [
    "advice",
    "device_allocations",
    "device_uuids",
    "gang",
    "gang_cache",
    "idle_gangs",
    "later_waves",
    "node_shapes",
    "nodes_needed",
    "outside_queues",
    "queue",
    "queue_sums",
]
