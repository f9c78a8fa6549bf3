"""The explanation, with numbers, of why a gang has no plan."""

__all__ = ["absent_features", "busy", "explain", "supply"]
