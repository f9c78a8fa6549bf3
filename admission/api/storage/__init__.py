"""Decoded objects of Kubernetes' storage: what decides to which nodes the volumes of a pod keep it."""

__all__ = ["csi", "persistent_volumes", "storage"]
