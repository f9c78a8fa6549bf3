"""Runs admission cycles over manifests, offline."""

__all__ = ["claim_defaults", "expand", "lint", "offline", "replay", "validation"]
