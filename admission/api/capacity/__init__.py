"""Which nodes a cluster may still get, and how they are asked for."""

__all__ = ["node_provision", "node_shapes"]
