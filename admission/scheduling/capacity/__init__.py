"""Which nodes would have to come so that held gangs start."""

__all__ = ["capacity_requests", "expected_nodes", "node_needs", "node_requests", "scale_down"]
