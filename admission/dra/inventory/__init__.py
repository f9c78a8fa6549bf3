"""The devices that a node sees, from ResourceSlices, pools, taints, counters."""

__all__ = ["counters", "device_taints", "node_index", "pools", "selectors"]
