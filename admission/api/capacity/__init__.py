"""Decoded objects that say which nodes a cluster may still get."""

__all__ = ["node_shapes"]
