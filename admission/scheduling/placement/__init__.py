"""Decides whether Muster or kube-scheduler picks the devices of a gang."""

__all__ = ["alternatives", "mode", "proposal", "protection", "protection_conditions"]
