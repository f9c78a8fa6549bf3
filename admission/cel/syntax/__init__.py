"""The parser of CEL: source text → tokens → syntax nodes, with macros expanded to nodes of their own."""

__all__ = ["lexer", "macros", "parser"]
