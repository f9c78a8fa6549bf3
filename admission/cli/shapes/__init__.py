"""`muster shapes`: the nodes that may still come."""
