"""The explanation, with numbers, of why a gang has no plan."""

__all__ = ["explain", "supply"]
