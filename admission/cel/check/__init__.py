"""Checks a CEL expression statically: its types, then the constant arguments that cel-go validates."""

__all__ = ["type_checker", "validators"]
