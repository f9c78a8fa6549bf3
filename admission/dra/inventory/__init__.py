"""The devices that each node sees, derived from ResourceSlices: pools, taints, counters, selectors."""

__all__ = ["counters", "device_taints", "node_index", "pools", "selectors"]
