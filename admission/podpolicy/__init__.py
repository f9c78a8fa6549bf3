"""What a pod or workload gets at admission, or is refused for."""

__all__ = ["admission", "annotations", "pod_view", "queue_limits", "queue_selection", "update", "workload_admission"]
