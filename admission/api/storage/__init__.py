"""Decoded objects of Kubernetes' storage: what decides to which nodes the volumes of a pod keep it."""

__all__ = ["assumed_volumes", "claim_templates", "csi", "free_volumes", "persistent_volumes", "storage"]
