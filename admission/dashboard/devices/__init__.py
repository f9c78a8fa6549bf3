"""Arranges the devices of nodes for display."""

__all__ = ["capacity", "diagram", "gang_capacity", "heat_map", "inventory", "shapes"]
