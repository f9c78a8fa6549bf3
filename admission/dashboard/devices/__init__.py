"""The devices of a node as the dashboard shows them."""

__all__ = ["diagram", "inventory"]
