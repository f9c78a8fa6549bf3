"""Writes to the API server, with one module for each kind of object."""

__all__ = [
    "claim_templates",
    "claims",
    "events",
    "nodes",
    "pods",
    "provisioning_requests",
    "queue_finalizer",
    "status",
    "workloads",
]
