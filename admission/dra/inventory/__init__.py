"""Derives the devices that a node sees from ResourceSlices: pools, taints, counters, selectors."""

__all__ = ["counters", "device_taints", "node_index", "pools", "selectors"]
