"""CEL text parsed into syntax nodes."""

__all__ = ["macros", "parser"]
