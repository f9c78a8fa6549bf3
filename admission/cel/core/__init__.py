"""The data model of CEL: values, static types, function declarations, syntax nodes.

`values` and `types` are what expressions compute with and are checked against; `ast` is what the parser builds;
`activation` and `budget` hold the state and the bounds of one evaluation.
"""

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
