"""The search for a gang's nodes where kube-scheduler's first fit chooses the devices."""

__all__ = [
    "candidate_nodes",
    "cost",
    "device_kinds",
    "device_order",
    "device_resources",
    "first_fit",
    "no_plan",
    "node_filters",
    "node_groups",
    "node_order",
    "pod_groups",
    "requeue_hint",
    "upper_bound",
]
