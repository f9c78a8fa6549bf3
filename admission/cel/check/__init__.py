"""The types that a CEL expression has before it is evaluated."""
