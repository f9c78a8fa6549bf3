"""A trace of jobs played in virtual time."""

__all__ = ["cluster", "figures", "player"]
