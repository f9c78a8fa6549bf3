"""Pages as documents for programs."""

__all__ = ["books", "cluster", "encoding", "openapi"]
