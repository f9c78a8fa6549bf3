"""The evaluation of checked CEL expressions, by planned closures or by a generated loop."""

__all__ = ["attributes", "comprehensions", "dispatch", "field_access", "interpreter", "parse_cache", "vectorized"]
