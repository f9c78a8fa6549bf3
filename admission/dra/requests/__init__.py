"""The parsed requests of pods and claims: alternatives, constraints, capacity, extended resources."""

__all__ = ["capacity", "constraints", "device_use", "extended_resources", "gang_request", "requests"]
