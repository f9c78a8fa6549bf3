"""Muster's own objects at admission: what is refused of them, and what their author should know."""

__all__ = ["admission", "claim_policies", "findings", "gangs", "meters", "queues", "workloads"]
