"""What claims request: alternatives, constraints, capacity, extended resources."""
