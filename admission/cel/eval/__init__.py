"""The evaluation of checked CEL expressions, by planned closures."""

__all__ = ["attributes", "comprehensions", "dispatch", "field_access", "interpreter"]
