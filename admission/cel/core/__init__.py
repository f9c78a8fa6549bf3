"""The values, types, declarations and syntax nodes of CEL."""

__all__ = [
    "arithmetic",
    "ast",
    "budget",
    "declarations",
    "equality",
    "errors",
    "frames",
    "literals",
    "size_estimate",
    "types",
    "values",
]
