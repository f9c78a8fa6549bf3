"""CEL text parsed into syntax nodes."""
