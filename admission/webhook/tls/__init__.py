"""The serving certificates of the webhook."""

__all__ = ["ca_rotation", "certificate", "rotation"]
