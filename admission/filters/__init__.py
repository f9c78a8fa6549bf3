"""The filters of kube-scheduler that read more than a node: which nodes a pod may go to by other pods, by volumes.

Each module has the name of its filter; VolumeZone, a comparison of labels, is in `volume_rules`.
"""

__all__ = [
    "gang_rules",
    "gang_volumes",
    "inter_pod_affinity",
    "node_ports",
    "node_volume_limits",
    "placed_pods",
    "pod_claims",
    "pod_rules",
    "pod_topology_spread",
    "refusal",
    "volume_binding",
    "volume_restrictions",
    "volume_rules",
]
