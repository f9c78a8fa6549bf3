"""The cost of a CEL expression in cel-go's units: estimated before, tracked during evaluation."""

__all__ = ["call_runtime_cost", "runtime_cost", "static_cost"]
