"""What commands that list or watch objects print."""

__all__ = ["list_output", "watch_output"]
