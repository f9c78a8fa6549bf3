"""Replays a trace of jobs in virtual time."""

__all__ = ["autoscaler", "cluster", "figures", "player"]
