"""Muster: queue-aware batch admission for Kubernetes clusters with Dynamic Resource Allocation."""

__version__ = "0.1.0"
