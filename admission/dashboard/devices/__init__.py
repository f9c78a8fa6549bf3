"""Arranges the devices of nodes for display."""

__all__ = ["capacity", "diagram", "heat_map", "inventory", "shapes"]
