"""Why there is no plan for a gang, in words with numbers."""

__all__ = ["explain", "supply"]
