"""The evaluation of CEL expressions."""

__all__ = ["attributes", "comprehensions", "dispatch", "field_access", "interpreter", "parse_cache", "vectorized"]
