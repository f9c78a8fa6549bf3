"""Admits pods to queues."""

__all__ = [
    "admission",
    "annotations",
    "job_pods",
    "known_claims",
    "outside_queues",
    "pod_view",
    "queue_limits",
    "queue_selection",
    "resize",
    "update",
    "workload_admission",
    "workload_queue",
]
