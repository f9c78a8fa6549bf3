"""Which nodes would have to come so that held gangs start."""

__all__ = [
    "arrival_times",
    "capacity_requests",
    "expected_nodes",
    "node_needs",
    "node_requests",
    "pool_bounds",
    "scale_down",
    "seat_moves",
    "unread_shapes",
]
