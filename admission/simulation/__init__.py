"""Runs admission cycles over manifests, offline."""

__all__ = ["capacity", "claim_defaults", "expand", "lint", "offline", "replay", "validation"]
