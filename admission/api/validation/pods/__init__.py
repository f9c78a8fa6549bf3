"""Validation of pods, or of the templates that pods are made of."""

__all__ = ["placement", "resources", "templates"]
