"""The values, types, declarations and syntax nodes of CEL."""

__all__ = [
    "activation",
    "arithmetic",
    "ast",
    "budget",
    "declarations",
    "equality",
    "errors",
    "literals",
    "size_estimate",
    "types",
    "values",
]
