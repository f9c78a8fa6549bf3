"""What is said of nodes that a cluster may still get, or gangs that waited for some."""

__all__ = ["gang_shapes", "node_pools", "node_provision", "node_shapes", "provisioning_requests"]
