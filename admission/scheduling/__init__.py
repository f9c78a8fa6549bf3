"""Whether a gang may start now."""

__all__ = ["backfill", "cache", "checks", "cycle", "placement", "preemption"]
