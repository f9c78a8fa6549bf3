"""The filters of kube-scheduler that look at other pods: which nodes a pod may go to beside those that are there."""

__all__ = [
    "gang_rules",
    "inter_pod_affinity",
    "node_ports",
    "placed_pods",
    "pod_rules",
    "pod_topology_spread",
    "refusal",
]
