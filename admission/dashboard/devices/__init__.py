"""Arranges the devices of nodes for display."""

__all__ = ["capacity", "diagram", "inventory"]
