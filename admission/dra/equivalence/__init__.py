"""Equivalence classes of devices, of nodes."""
