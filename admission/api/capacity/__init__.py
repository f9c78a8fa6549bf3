"""What is said of nodes that a cluster may still get."""

__all__ = ["node_pools", "node_provision", "node_shapes", "provisioning_requests"]
