"""Decoded objects of Kubernetes."""

__all__ = [
    "access_review",
    "active_deadline",
    "admission_review",
    "claims",
    "device_taint_rules",
    "devices",
    "jobs",
    "meta",
    "nodes",
    "owners",
    "pod_requests",
    "pods",
    "priority_classes",
]
