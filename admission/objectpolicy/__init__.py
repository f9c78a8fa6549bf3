"""Judges Muster's own objects at admission."""

__all__ = ["admission", "claim_policies", "findings", "gangs", "meters", "queues", "workloads"]
