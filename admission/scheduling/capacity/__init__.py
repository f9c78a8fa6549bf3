"""Which nodes would have to come so that held gangs start."""

__all__ = ["expected_nodes", "node_needs", "node_requests"]
