"""Groups interchangeable devices or nodes into equivalence classes."""

__all__ = ["device_signature", "node_contents", "node_signature", "node_usage", "usage_overlay"]
