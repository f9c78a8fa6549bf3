"""The functions that an expression may call, one module a library of Kubernetes' or cel-go's.

Each module has OVERLOADS, its declarations; `catalog` puts them together. Implementations take and return native
values (see `core.values`) and raise EvaluationError.
"""

__all__ = ["catalog", "protobuf_messages", "quantities", "regex", "semver", "sorting", "string_format", "strings"]
