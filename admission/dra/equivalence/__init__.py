"""The equivalence classes of interchangeable devices or nodes."""

__all__ = ["device_signature", "node_contents", "node_signature", "node_usage", "usage_overlay"]
