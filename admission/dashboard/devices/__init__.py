"""Arranges the devices of nodes for display, and counts them by class."""

__all__ = ["capacity", "diagram", "inventory"]
