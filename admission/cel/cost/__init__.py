"""What a CEL expression costs, in cel-go's units."""

__all__ = ["runtime_cost", "static_cost"]
