"""The explanation, with numbers, of why a gang has no plan."""

__all__ = ["busy", "explain", "supply"]
