"""Writes to the API server, with one module for each kind of object."""

__all__ = ["claim_templates", "claims", "events", "pods", "queue_finalizer", "status", "workloads"]
