"""Arranges the devices of a node for display."""

__all__ = ["diagram", "inventory"]
