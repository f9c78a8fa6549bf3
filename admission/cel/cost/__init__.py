"""What a CEL expression costs, in cel-go's units."""

__all__ = ["call_runtime_cost", "runtime_cost", "static_cost"]
