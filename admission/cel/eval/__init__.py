"""The evaluation of CEL expressions."""

__all__ = ["comprehensions", "dispatch", "field_access", "interpreter", "parse_cache", "vectorized"]
