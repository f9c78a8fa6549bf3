"""The values, types, declarations and syntax nodes of CEL."""
