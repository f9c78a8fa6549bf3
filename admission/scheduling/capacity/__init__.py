"""Which nodes would have to come so that held gangs start."""

__all__ = ["awaited_nodes", "node_needs", "node_requests"]
