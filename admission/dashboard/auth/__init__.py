"""Who may see what on the dashboard."""

__all__ = ["authentication", "rbac", "session"]
