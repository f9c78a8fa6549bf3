"""The allocation of devices to one pod on one node, by kube-scheduler's rules."""

__all__ = [
    "allocation",
    "node_allocator",
    "nominated",
    "prescribed",
    "results",
    "search",
    "stranded_devices",
    "trampoline",
]
