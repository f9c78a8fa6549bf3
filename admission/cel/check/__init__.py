"""The static checks of a CEL expression: types, then the constant arguments that cel-go validates."""

__all__ = ["type_checker", "validators"]
