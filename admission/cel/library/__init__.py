"""The functions that an expression may call: one module for each library of cel-go or of Kubernetes.

Each module has OVERLOADS, its declarations; `catalog` collects them. Implementations take and return native
values (see `core.values`) and raise EvaluationError.
"""

__all__ = [
    "catalog",
    "optionals",
    "protobuf_messages",
    "quantities",
    "regex",
    "semver",
    "sorting",
    "string_format",
    "strings",
]
