"""Decides who picks the devices of a gang: Muster or kube-scheduler."""

__all__ = ["mode", "proposal", "protection", "protection_conditions"]
