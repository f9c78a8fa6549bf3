"""The evaluation of CEL expressions."""
