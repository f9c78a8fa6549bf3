"""The types that a CEL expression has before it is evaluated."""

__all__ = ["type_checker", "validators"]
