"""Replays a trace of jobs in virtual time."""

__all__ = ["cluster", "figures", "player"]
