"""Pages about devices, about the nodes that have them or may still come."""

__all__ = ["gang_capacity", "heat_map", "node_shapes", "nodes"]
